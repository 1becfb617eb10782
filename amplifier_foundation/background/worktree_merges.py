"""Merge the branch of a worktree into the branch that is checked out in its project.

The merge is made beside the files of the project, which then move forward to it: they never hold a conflict. It brings
the work of the session alone: a branch without the commit that the session began with would get that one as well. A
branch that had this commit, as its reflog knows, and was amended or rebased, gets the work as one commit of its own.

A merge is a write of the session. What its permissions refuse stays on the branch, whatever has written it there.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.frozen import frozen

from .git import GitError, make_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .git import Git

    Announce = Callable[[dict[str, str]], None]
    MayWrite = Callable[[str], bool]

MOST_NAMED = 20
"""Files named in a commit's message or a reason."""
MOST_ANNOUNCED = 1000
"""Files announced before a merge."""
PATIENCE = 10.0
"""Seconds until another git has finished with the files of the project."""
_WAIT = 0.05
_LINK, _SUBMODULE = "120000", "160000"
"""Modes in a tree of git."""
_TRIES = 5


class _Change(NamedTuple):
    """A file in which two commits differ, with its mode and the name of its object in the later one."""

    name: str
    mode: str
    content: str
    status: str
    """As in `git diff --name-status`."""


class NotMerged(Exception):
    """The branch cannot be merged now; `files` are those in the way."""

    def __init__(self, reason: str, files: list[str] | None = None) -> None:
        self.files = files or []
        super().__init__(reason)


@frozen
class Merge:
    """A merge of a commit; `git` is that of the project."""

    git: Git
    branch: str
    base: str
    """The commit that the branch began with."""
    commit: str
    message: str
    may_write: MayWrite | None = None
    """Whether the session may write the file at a path in the repository; None: any."""

    def make(self, announce: Announce) -> None:
        """Merge, once `announce` knows which files of the project it writes. Raises `NotMerged` and `GitError`."""
        for _ in range(_TRIES):
            if self._try(announce):
                return
        raise NotMerged("the project has got new commits each time")

    def _try(self, announce: Announce) -> bool:
        """Return whether the project has the commit now; False: it has moved meanwhile. Raises `NotMerged`."""
        head, onto = self.git.find_commit("HEAD"), self.git.find("symbolic-ref", "--quiet", "--short", "HEAD")
        if head is None or onto is None:
            raise NotMerged("no branch is checked out in the project")
        if self.git.is_ancestor(self.commit, head):
            return True
        if self.git.is_ancestor(self.base, head):
            merge = self.git.commit_tree(self._merge_trees(head), [head, self.commit], self.message)
        elif self.git.find("merge-base", "--fork-point", onto, self.commit) == self.base:
            # The branch was amended or rebased: a merge would bring back what it has dropped.
            tree = self._merge_trees(self.git.commit_tree(f"{head}^{{tree}}", [self.base], self.message))
            if tree == self.git.run("rev-parse", f"{head}^{{tree}}").strip():
                return True
            merge = self.git.commit_tree(tree, [head], self.git.run("log", "-1", "--format=%B", self.commit))
        else:
            began = f"the commit {self.base[:12]} that the work began with"
            raise NotMerged(f"the branch {make_plain(onto)}, checked out in the project, does not have {began}")
        changes = self._read_changes(head, merge)
        self._refuse_guarded(changes)
        announce(self._digest_files(changes))
        try:
            return self._move_forward(head, merge)
        except GitError as error:
            if error.status is None:
                raise
            if self.git.find_commit("HEAD") != head:
                return False
            changed = [make_plain(line).strip() for line in error.problems if line.startswith("\t")]
            reason = f"uncommitted changes of yours in {name_files(changed)}" if changed else str(error)
            raise NotMerged(reason, changed) from error

    def _merge_trees(self, head: str) -> str:
        """Return the tree of a merge. Raises `NotMerged`."""
        wanted = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
        try:
            said = self.git.run(*wanted, head, self.commit, accepts=(0, 1)).split("\0")
        except GitError as error:
            if error.status is None:
                raise
            old = any(line.startswith("usage:") for line in error.problems)
            raise NotMerged("git is too old to merge; install 2.38 or newer" if old else str(error)) from error
        conflicts = [make_plain(each) for each in said[1:] if each]
        if conflicts:
            raise NotMerged(f"conflicts in {name_files(conflicts)}", conflicts)
        return said[0]

    def _read_changes(self, before: str, after: str) -> list[_Change]:
        """Return how a commit differs from another."""
        said = self.git.run("diff-tree", "-r", "-z", "--no-renames", before, after).split("\0")
        changes = []
        for facts, name in zip(said[::2], said[1::2], strict=False):
            _, mode, _, content, status = facts.split()
            changes.append(_Change(name, mode, content, status))
        return changes

    def _refuse_guarded(self, changes: Sequence[_Change]) -> None:
        """Raise `NotMerged` for a change of a file closed to the session's writes, or of a link to one."""
        if self.may_write is None:
            return
        links = [each for each in changes if each.mode == _LINK]
        targets = zip(links, self._read_objects([each.content for each in links]), strict=True)
        leading = [link.name for link, target in targets if not self._may_lead(link.name, os.fsdecode(target))]
        for guarded, why in (
            (
                [each.name for each in changes if not self.may_write(each.name)],
                "changes files that no session may write",
            ),
            (leading, "has links to what no session may write"),
        ):
            if guarded:
                named = name_files([make_plain(each) for each in guarded])
                raise NotMerged(f"it {why}: {named}. Look at the branch, and merge it yourself")

    def _may_lead(self, link: str, target: str) -> bool:
        """Return whether a link stays within the repository, and leads to no file closed to the session's writes."""
        assert self.may_write is not None
        above, parts = link.split("/")[:-1], [each for each in target.split("/") if each not in ("", ".")]
        while parts[:1] == [".."] and above:
            above, parts = above[:-1], parts[1:]
        if target.startswith("/") or ".." in parts:  # a way back may begin in another link
            return False
        return self.may_write("/".join([*above, *parts]))

    def _read_objects(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the contents of objects. Raises `GitError` for one that the repository lacks."""
        said = self.git.run("cat-file", "--batch", data="".join(f"{each}\n" for each in names))
        rest = said.encode("utf-8", "surrogateescape")
        for _ in names:
            head, _, rest = rest.partition(b"\n")
            if head.endswith(b" missing"):
                missing = f"the object {head.split()[0].decode()} is missing in {self.git.repository}"
                raise GitError(f"{missing}. `git fsck` names all that are; fetch them from another clone")
            size = int(head.rpartition(b" ")[2])
            yield rest[:size]
            rest = rest[size + 1 :]

    def _digest_files(self, changes: Sequence[_Change]) -> dict[str, str]:
        """Return the SHA-256 of new and changed files, by their paths in the project; those of submodules have none."""
        files = [each for each in changes if each.status in ("A", "M") and each.mode != _SUBMODULE][:MOST_ANNOUNCED]
        contents = self._read_objects([each.content for each in files])
        return {
            str(Path(self.git.files, file.name)): sha256(content).hexdigest()
            for file, content in zip(files, contents, strict=True)
        }

    def _move_forward(self, head: str, merge: str) -> bool:
        """Have the project's branch and files move forward to a merge, once no other git holds them.

        Return False when the project is not at `head` any more: it may be at an older commit of another branch.
        """
        git = replace(self.git, environment={"GIT_REFLOG_ACTION": f"merge {self.branch}"})
        until = time.monotonic() + PATIENCE
        while git.find_commit("HEAD") == head:
            try:
                git.run("merge", "--quiet", "--ff-only", "--no-autostash", merge)
                return True
            except GitError as error:
                if "index.lock" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(_WAIT)
        return False


def name_files(files: list[str]) -> str:
    """Return the names of the first files, and how many more there are."""
    more = len(files) - MOST_NAMED
    return ", ".join(files[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
