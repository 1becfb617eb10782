"""Run git on the repository of a project in whose worktrees sessions write.

git runs outside of every sandbox, so nothing that a session wrote may lead it. It gets the folders of the repository as
absolute paths and never looks for them through a file `.git`. No hook runs, no editor, no file-system monitor and no
program for signatures; submodules and nested repositories are not entered. `guard` has filters and merge drivers run as
far as they can obey nothing of the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError
from amplifier_core.frozen import frozen
from amplifier_core.utils.secrets import redact_text

from ..sources.git import SAFE_SETTINGS
from .git_filters import Guard, Setting, guard_filters

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TIME_LIMIT = 120.0
"""Seconds for one run of git."""

_SETTINGS = SAFE_SETTINGS | {
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.filesRefLockTimeout": "10000",
    "core.packedRefsTimeout": "10000",
    "core.quotePath": "false",
    "diff.ignoreSubmodules": "all",
    "log.showSignature": "false",
    "merge.autoStash": "false",
    "merge.verifySignatures": "false",
    "rerere.enabled": "false",
    "safe.bareRepository": "explicit",
    "worktree.useRelativePaths": "false",
}
_PASSED = ("HOME", "LOGNAME", "TMPDIR", "USER", "XDG_CONFIG_HOME")
_FIXED = {
    "GIT_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_TERMINAL_PROMPT": "0",
    "PYTHONSAFEPATH": "1",  # a filter in Python imports nothing of the worktree
    "LC_ALL": "C",
    "SSH_ASKPASS_REQUIRE": "never",
}


class GitError(AmplifierError, RuntimeError):
    """git is missing, took too long, was killed, or could not do its work; `status` is its exit status, if it has one.

    `problems` are the lines of its complaint.
    """

    def __init__(
        self, text: str, status: int | None = None, problems: Sequence[str] = (), *, is_final: bool = False
    ) -> None:
        self.status, self.problems, self.is_final = status, problems, is_final
        super().__init__(text)


def find_git() -> str:
    """Return the path of git. Raises `GitError` with the remedy."""
    found = shutil.which("git", path=_absolute_path())
    if found is None:
        raise GitError("git is not installed. Install it: apt-get install git, or brew install git", is_final=True)
    return found


def _absolute_path() -> str:
    """Return the folders of programs; a relative one would be in the worktree of a session."""
    return os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))


@frozen
class Git:
    """git with one repository: its git folder, and the folder of its files."""

    repository: str
    files: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables."""
    guarding: Guard = Guard({}, {})
    """The rules for filters."""

    def run(self, *arguments: str, data: str | None = None, accepts: Collection[int] = (0,)) -> str:
        """Return the output of git, given `data`. Raises `GitError`, and ends git when it takes too long."""
        place = {"GIT_DIR": self.repository, "GIT_WORK_TREE": self.files, **self.environment}
        try:
            return _run(arguments, "/", place, data, accepts, self.guarding.settings)
        except GitError as error:
            refused = self.guarding.reasons.keys() & {*error.problems}
            if not refused:
                raise
            raise GitError(self.guarding.reasons[min(refused)], error.status, is_final=True) from None

    def find(self, *arguments: str) -> str | None:
        """Return the only line of git's output; None when git fails or says nothing."""
        try:
            return self.run(*arguments).rstrip("\n") or None
        except GitError as error:
            if error.status is None:
                raise
            return None

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Return whether a commit belongs to the history of another one."""
        return self.find_commit(commit) is not None and self.find("merge-base", commit, of) == commit

    def find_commit(self, name: str) -> str | None:
        """Return the full name of a commit; None when there is none."""
        return self.find("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")

    def choose_author(self) -> Git:
        """Return this git with an author for commits: the configured user, else amplifier."""
        if self.find("config", "user.name") and self.find("config", "user.email"):
            return self
        names = {f"GIT_{who}_NAME": "amplifier" for who in ("AUTHOR", "COMMITTER")}
        addresses = {f"GIT_{who}_EMAIL": "amplifier@localhost" for who in ("AUTHOR", "COMMITTER")}
        return replace(self, environment={**self.environment, **names, **addresses})

    def commit_tree(self, tree: str, parents: Sequence[str], message: str) -> str:
        """Return a new commit of a tree, which no branch has yet. Raises `GitError`."""
        above = [part for parent in parents for part in ("-p", parent)]
        return self.choose_author().run("commit-tree", tree, *above, "-F", "-", data=message).strip()

    def guard(self, *folders: str) -> Git:
        """Return this git for runs that need filters; these obey nothing in its files, nor in further `folders`.

        Raises `GitError`.
        """
        said = self.run("config", "--null", "--show-scope", "--includes", "--list")
        facts = said.split("\0")
        found = [
            Setting(*each.partition("\n")[::2], is_own=scope in ("global", "system"))
            for scope, each in zip(facts[::2], facts[1::2], strict=False)
        ]
        guarding = guard_filters(found, (self.files, *folders), _absolute_path())
        if odd := next((key for key in guarding.settings if "=" in key), None):
            raise GitError(f"git's setting {make_plain(odd)} has '=' in its name: rename it", is_final=True)
        return replace(self, guarding=guarding)


@frozen
class Checkout:
    """The repository around a project, and what is checked out there."""

    top: str
    """The folder of its files."""
    repository: str
    """The git folder of this checkout."""
    common: str
    """The git folder of the repository with all its worktrees."""
    prefix: str
    """The path of the project in it; '' for its top."""
    head: str
    """The commit."""


def find_checkout(project: str) -> Checkout | str:
    """Return the checkout around a project, or why its sessions have no worktrees. Raises `GitError`."""
    asked = ("--is-inside-work-tree", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-prefix")
    try:
        said = _run(("rev-parse", *asked), project, {}, None, (0,), {}).split("\n")
    except GitError as error:
        if error.status is None or "not a git repository" not in str(error):
            raise
        return "it is in no git repository"
    top, repository, common, prefix = said[1:5]
    common, prefix = os.path.realpath(Path(project, common)), prefix.rstrip("/")
    git = Git(repository, top)
    head = git.find_commit("HEAD")
    if head is None:
        return "its git repository has no commit yet"
    if prefix and git.find("cat-file", "-t", f"{head}:{prefix}") != "tree":
        return "the folder is in no commit of its git repository"
    return Checkout(top, repository, common, prefix, head)


def _run(
    arguments: tuple[str, ...],
    folder: str,
    place: Mapping[str, str],
    data: str | None,
    accepts: Collection[int],
    settings: Mapping[str, str],
) -> str:
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    options = [part for key, value in {**_SETTINGS, **settings}.items() for part in ("-c", f"{key}={value}")]
    child = subprocess.Popen(
        [find_git(), "--no-pager", *options, *arguments],
        cwd=folder,
        env={**passed, **_FIXED, "PATH": _absolute_path(), **place},
        stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        try:
            given = data.encode("utf-8", "surrogateescape") if data is not None else None
            output, problem = (
                said.decode("utf-8", "surrogateescape") for said in child.communicate(given, timeout=TIME_LIMIT)
            )
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise GitError(f"git {arguments[0]} took longer than {TIME_LIMIT:g} s, and was ended") from None
            raise
    if child.returncode < 0:  # it says nothing about the repository
        raise GitError(f"git {arguments[0]} was ended by signal {-child.returncode}")
    if child.returncode not in accepts:
        said = redact_text(make_plain(problem).strip() or "failed without a word")[:1000]
        raise GitError(f"git {arguments[0]}: {said}", child.returncode, problem.splitlines())
    return output


def make_plain(text: str) -> str:
    """Return a text on one line, without control characters and what is no Unicode."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", text)
