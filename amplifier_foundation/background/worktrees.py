"""Make the git worktree of a session, commit its changes, merge its branch, and remove it.

A note beside the worktree says how far it is. Each step is written there before the next one begins, and each may be
repeated: whatever is killed when, the next attempt goes on from the note.

    noted ─▶ ready ─▶ (the session works) ─▶ committed ─▶ merged, or left ─▶ removed ─▶ the note is forgotten

The repository, the branch and the commit are those of the note, never those of a file in the worktree: the session may
write whatever it likes there. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted
from amplifier_core.permissions import read_regular
from amplifier_core.utils.secrets import redact_text

from ..documents.dicts import known_members
from ..documents.files import write_whole
from ..paths import data_home, make_private
from .branch_names import choose_branch
from .git import Git, GitError, find_checkout, make_plain
from .worktree_files import has_files, is_whole, remove_folder, remove_nested, require_whole
from .worktree_merges import MOST_NAMED, Merge, NotMerged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .worktree_merges import Announce, MayWrite

TRAILER = "Amplifier-Session"
MOST_TOLD = 100
"""Names of files in the completion events and in the session's record."""
SUBJECT = 72
"""Characters of the first line of a commit's message."""
_IS_SKIPPED = re.compile(r"error: (?:invalid path|unable to add) '|warning: |hint: ")
"""The complaints of git about a file with a name that no repository may have."""


@slotted
class Result:
    """What has become of the changes of a session."""

    branch: str | None = None
    """None: there were no changes."""
    commit: str | None = None
    merged: bool = False
    conflicts: list[str] = field(default_factory=list)
    """Files with changes on both sides, or with uncommitted changes of the person."""
    reason: str = ""
    """Why it is not merged, where that was asked for."""
    left_out: list[str] = field(default_factory=list)
    """Files and folders that are not kept: git does not take them. Ignored ones are not among them."""

    def facts(self) -> dict[str, Any]:
        """Return the members of the completion events."""
        done = {"branch": self.branch, "commit": self.commit, "merged": self.merged}
        lost = {"left_out": self.left_out[:MOST_TOLD], "left_out_count": len(self.left_out)}
        return {**done, "conflicts": self.conflicts[:MOST_TOLD], **lost}


@slotted
class Worktree:
    """The worktree of one session, as its note describes it."""

    session_id: str
    project: str
    top: str
    repository: str
    common: str
    prefix: str
    branch: str
    base: str
    """The commit that it began with."""
    is_ready: bool = False
    commit: str | None = None
    """The commit with all changes; None: it is not committed yet."""
    left_out: list[str] = field(default_factory=list)
    """What the commit does not have; see `Result`."""
    result: Result | None = None
    ignored: list[str] = field(default_factory=list)
    """What git ignores, where there is nothing to commit; the note does not have it."""

    @property
    def path(self) -> str:
        """Return the folder of the worktree."""
        return str(_home() / self.session_id)

    @property
    def folder(self) -> str:
        """Return the working folder of the session."""
        return str(Path(self.path, self.prefix))

    def metadata(self) -> dict[str, Any]:
        """Return the member of the session's record."""
        done = self.result.facts() if self.result is not None else {}
        reason = {"reason": self.result.reason} if self.result is not None and self.result.reason else {}
        return {"path": self.path, "base": self.base, "branch": self.branch, **done, **reason}

    def save(self) -> None:
        """Write the note, durable on return. A version without `left_out` reads it while there is nothing left out."""
        make_private(_home())
        note = asdict(self)
        del note["ignored"]
        if not self.left_out:
            for each in (note, note["result"] or {}):
                each.pop("left_out", None)
        write_whole(_note_of(self.session_id), json.dumps(note))

    @property
    def _above(self) -> Git:
        return Git(self.repository, self.top)

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.branch}"

    # To make it

    def make(self) -> None:
        """Make the worktree of the branch. Raises `GitError`."""
        self._above.guard(self.path).run("worktree", "add", "--quiet", "--lock", self.path, self.branch)
        self.is_ready = True
        self.save()

    def undo(self) -> None:
        """Remove what a killed process has left of the making. Raises `GitError` and `OSError`."""
        self._remove_files()
        self._delete_branch(self.base)
        self.forget()

    def check_folder(self) -> None:
        """Make the working folder where it is missing.

        Raises `GitError` for one outside of the worktree, and for a worktree that was removed.
        """
        if self.commit is None:
            require_whole(self.path, self._above, self.base)
        Path(self.folder).mkdir(parents=True, exist_ok=True)  # it is finished, or its session has removed the folder
        if os.path.realpath(self.folder) != self.folder:
            raise GitError(f"{self.folder} leads elsewhere", is_final=True)

    # To finish it

    def commit_changes(self, subject: str, *, is_finished: bool = True) -> None:
        """Commit all files on the branch, but for ignored ones. Raises `GitError`."""
        if self.commit is not None:
            return
        above = self._above
        known = above.find_commit(self._ref)
        tip = known or self.base
        if is_finished:
            require_whole(self.path, above, self.base)
        if is_finished or is_whole(self.path, above, self.base):
            nested = remove_nested(self.path)
            tree, self.left_out = self._write_tree(tip)
            if tree is not None:
                lines = [*(f"Without its own history: {each}" for each in nested[:MOST_NAMED])]
                lines += [f"Left out: {each}" for each in self.left_out[:MOST_NAMED]]
                message = self._describe(f"{'' if is_finished else 'unfinished: '}{subject}", lines)
                tip = above.commit_tree(tree, [tip], message)
        if tip != known:
            above.run("update-ref", self._ref, tip, known or "")
        self.commit = tip
        self.save()

    def _write_tree(self, tip: str) -> tuple[str | None, list[str]]:
        """Return the tree of all files, None for that of `tip`, and what it does not have: see `Result.left_out`."""
        own = self.find_own_folder()
        if own is None:
            raise GitError(f"the repository {self.common} knows the worktree {self.path} no more; it stays as it is")
        index = Path(f"{self.path}.index")
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
        git = Git(own, self.path, {"GIT_INDEX_FILE": str(index)})
        try:
            try:
                shutil.copyfile(Path(own, "index"), index)  # a lock of a killed git would hold up the worktree's own
            except FileNotFoundError:
                git.run("read-tree", tip)
            try:
                git.guard(self.top).run("add", "--all", "--ignore-errors")
            except GitError as error:
                if error.status != 1 or not all(map(_IS_SKIPPED.match, error.problems)):
                    raise
            others = ("ls-files", "--others", "--exclude-standard", "-z")
            skipped = git.run(*others).split("\0")
            staged = git.run("ls-files", "--stage", "-z").split("\0")
            modules = [each.partition("\t")[2] for each in staged if each.startswith("160000 ")]
            skipped += [each for each in modules if has_files(f"{self.path}/{each}")]
            tree: str | None = git.run("write-tree").strip()
            if tree == git.run("rev-parse", f"{tip}^{{tree}}").strip():
                tree = None
                ignored = git.run(*others, "--ignored", "--directory", "--no-empty-directory").split("\0")
                self.ignored = [make_plain(each) for each in ignored if each]
            return tree, [make_plain(each) for each in skipped if each]
        finally:
            index.unlink(missing_ok=True)

    def find_own_folder(self) -> str | None:
        """Return the git folder of the worktree: the repository says which one it is, not the worktree."""
        for each in Path(self.common, "worktrees").glob("*/gitdir"):
            if os.fsdecode(read_regular(each, 1 << 16)).rstrip("\n") == f"{self.path}/.git":
                return str(each.parent)
        return None

    def _describe(self, subject: str, lines: list[str]) -> str:
        first = make_plain(redact_text(subject))[:SUBJECT].strip() or f"Work of session {self.session_id}"
        body = "".join(f"{line}\n" for line in lines)
        return f"{first}\n\n{body}{chr(10) if body else ''}{TRAILER}: {self.session_id}\n"

    def settle(self, announce: Announce | None = None, may_write: MayWrite | None = None) -> Result:
        """Merge the branch with `announce`, else leave it, and say so in the note. Hold the lock of the repository.

        The changes must be committed. `announce` hears before which files of the project a merge writes, and their
        digests; a merge writes none for which `may_write` says no. Raises `GitError` when git cannot tell.
        """
        assert self.commit is not None
        if self.result is None:
            if self.commit == self.base:
                self.result = Result()
            elif announce is not None:
                self.result = self._merge(self.commit, announce, may_write)
            else:
                self.result = Result(self.branch, self.commit)
            self.result.left_out = self.left_out
            self.save()
        return self.result

    def _merge(self, commit: str, announce: Announce, may_write: MayWrite | None) -> Result:
        message = self._describe(f"Merge branch '{self.branch}'", [])
        try:
            Merge(self._above.guard(self.path), self.branch, self.base, commit, message, may_write).make(announce)
        except NotMerged as reason:
            return Result(self.branch, commit, conflicts=reason.files, reason=str(reason))
        return Result(self.branch, commit, merged=True)

    # To remove it

    def remove(self) -> None:
        """Remove the worktree, and a branch that holds nothing of its own. Raises `GitError` and `OSError`."""
        self._remove_files()
        result = self.result
        if self.commit is not None and result is not None and (result.branch is None or result.merged):
            self._delete_branch(self.commit)

    def _delete_branch(self, commit: str) -> None:
        """Delete the branch, unless it is not there or somebody has gone on from this commit. Raises `GitError`."""
        try:
            self._above.run("update-ref", "-d", self._ref, commit)
        except GitError:
            if self._above.find_commit(self._ref) == commit:
                raise

    def _remove_files(self) -> None:
        remove_folder(self.path)
        if Path(self.common).is_dir():
            try:
                self._above.run("worktree", "remove", "--force", "--force", self.path)
            except GitError as error:
                if "is not a working tree" not in str(error):
                    raise

    def forget(self) -> None:
        """Remove the note."""
        remove_folder(self.path)
        _note_of(self.session_id).unlink(missing_ok=True)


def plan_worktree(session_id: str, project: str, branch: str, earlier: Mapping[str, Any]) -> Worktree | str:
    """Return a worktree for a session, with its note and its branch, or why there is none. Raises `GitError`.

    A session that was given up and is delivered again goes on with the commit of its `earlier` worktree, as in its
    record. Hold the lock of the repository meanwhile: nobody else takes the name of the branch.
    """
    checkout = find_checkout(project)
    if isinstance(checkout, str):
        return checkout
    git = Git(checkout.repository, checkout.top)
    old = f"refs/heads/{earlier.get('branch')}"
    trailer = f"--format=%(trailers:key={TRAILER},valueonly)"
    tip = git.find_commit(old) if earlier.get("branch") else None
    if tip is not None and git.run("log", "-1", trailer, tip).strip() != session_id:
        tip = None  # it is somebody else's by now
    goes_on = tip is not None and git.find("for-each-ref", "--format=%(worktreepath)", old) is None
    name = str(earlier["branch"]) if goes_on else choose_branch(git, branch, f"amplifier/{session_id}")
    place = (checkout.top, checkout.repository, checkout.common, checkout.prefix)
    base = checkout.head if tip is None else str(earlier["base"])
    worktree = Worktree(session_id, project, *place, branch=name, base=base)
    worktree.save()
    if not goes_on:
        git.run("update-ref", f"refs/heads/{name}", tip or checkout.head, "")
    return worktree


def read_worktree(session_id: str) -> Worktree | None:
    """Return the worktree of a session; None without a note of one."""
    try:
        noted = json.loads(_note_of(session_id).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    worktree = Worktree(**known_members(Worktree, noted))
    if noted["result"] is not None:
        worktree.result = Result(**known_members(Result, noted["result"]))
    return worktree


def renew_note(session_id: str, project: str, known: Mapping[str, Any]) -> Worktree | None:
    """Return a worktree that git still has, with a new note: somebody has removed the note, and perhaps the files.

    `known` is the member of the session's record. Raises `GitError`.
    """
    checkout = find_checkout(project)
    if isinstance(checkout, str):
        return None
    place = (checkout.top, checkout.repository, checkout.common, checkout.prefix)
    worktree = Worktree(session_id, project, *place, str(known["branch"]), str(known["base"]), is_ready=True)
    if worktree.find_own_folder() is None:
        return None
    worktree.save()
    return worktree


def list_worktrees() -> list[str]:
    """Return the sessions with worktrees in the data folder."""
    return sorted(each.stem for each in (data_home() / "worktrees").glob("[A-Za-z0-9]*.json"))


def has_worktree(session_id: str) -> bool:
    """Return whether there is a note of a session's worktree; at once, as each delivery asks."""
    return (data_home() / "worktrees" / f"{session_id}.json").is_file()


def _home() -> Path:
    return Path(os.path.realpath(data_home() / "worktrees"))


def _note_of(session_id: str) -> Path:
    return _home() / f"{session_id}.json"
