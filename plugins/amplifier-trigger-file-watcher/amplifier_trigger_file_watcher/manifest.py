"""Remember the watched files as they were when they last fired, and compare them with the files now.

A change is a difference between the two, whatever the operating system said: an editor's rename over the old file is
one modification, a file that came and went is nothing, and so is a new time stamp alone.

The very first look reads no files: that takes a fraction of the time. `read_more` reads them afterwards. A file touched
before it was read counts as modified, as its old content is not known.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from hashlib import file_digest
from typing import TYPE_CHECKING, Literal, NamedTuple

from .fingerprints import (
    DIGEST_BYTES,
    GONE,
    HASHED_BYTES,
    UNREAD,
    UNSURE,
    Fingerprint,
    facts_of,
    fingerprint,
    read_fingerprint,
    read_if_unchanged,
    stand_in,
    stat_file,
    young_since,
)
from .folder_index import FolderIndex, find_outermost
from .unreadable import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .fingerprints import Facts

FEW, SMALL_BYTES = 4, 65_536
"""Files to compare without a thread, at most: their number, and the bytes of each."""
LIMITS = frozenset((errno.ENOSPC, errno.EMFILE))
"""The errors of `entering` at a limit of the system."""

Kind = Literal["created", "modified", "deleted"]


class Change(NamedTuple):
    """A difference of a file from the manifest; `fingerprint` is None for a deleted one."""

    path: str
    kind: Kind
    fingerprint: Fingerprint | None
    moved_from: str | None = None
    """The path of the created file before a rename."""
    again: bool = False
    """Whether the file is as its last event said, and fires once more."""


class Manifest:
    """The files below `base` that `counts` lets through, each with its fingerprint.

    A path is relative to `base`, with slashes; that of a folder ends in one, and '' is `base` itself. Each walk calls
    `entering` with a folder before it looks into it. While `abandoned()` holds, everything returns early with a part.

    An unreadable path is as it was, until it is readable: `unreadable` has it, and a look at its folder begins anew.

    Invariants: `files` holds every file as an event has last described it, and changes by `apply` alone, apart from
    facts of files whose content is the same (`_difference`, `read_more`), and files that no longer count. One thread
    at a time uses a manifest.
    """

    def __init__(
        self,
        base: str,
        counts: Callable[[str], bool],
        *,
        recursive: bool,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = base.rstrip(os.sep) + os.sep
        self._recursive, self._abandoned = recursive, abandoned
        self.unreadable = Unreadable(self._root)
        self._unread: list[str] = []
        self._rewritten: set[str] = set()
        self._young: dict[str, int] = {}
        """The `ctime` of files that were young at their last look."""
        self.links: set[str] = set()
        """Symbolic links, and files with another name: the system has no events of changes by that way."""
        self.counts = counts
        self.entering: Callable[[str], None] | None = None
        self.files = {}

    @property
    def files(self) -> dict[str, Fingerprint]:
        """The known files; who sets them changes nothing in them any more."""
        return self._files

    @files.setter
    def files(self, files: dict[str, Fingerprint]) -> None:
        self._files = files
        self._index: FolderIndex | None = None  # made for the first folder: many trees never need it

    def begin(self) -> None:
        """Take the present files as known, most of them unread. Raises `OSError` at a limit of `entering`."""
        old, files = young_since(), {}
        for path, entry in self._walk(""):
            status = self._stat(path)
            if status is None:
                continue
            if status.st_nlink > 1:
                self.links.add(path)
            facts = facts_of(status, old)
            if facts[3] != UNSURE:
                files[path] = Fingerprint(*facts, UNREAD)
            elif known := fingerprint(entry.path):
                files[path] = known  # later it could not be told whether it has changed since
        self.files = files
        self.find_unread()

    def find_unread(self) -> None:
        """Find out which files are still to be read."""
        self._unread = [path for path, known in self.files.items() if known.content == UNREAD]

    def read_more(self, seconds: float) -> bool:
        """Read files that were not read yet, for so long; return whether there are more."""
        end = time.perf_counter() + seconds
        while self._unread and not self._abandoned() and time.perf_counter() < end:
            path = self._unread.pop()
            known = self.files.get(path)
            if known is not None and known.content == UNREAD:
                self.files[path] = read_if_unchanged(self._root + path, known)
        return bool(self._unread)

    def enter(self, folders: Iterable[str]) -> None:
        """Walk through new folders, for the sake of `entering`. Raises its `OSError` at a limit."""
        if self.entering is not None and self._recursive:
            for _ in self._walk_all(folders):
                pass

    def read_facts(self) -> dict[str, Facts]:
        """Return the facts of every file; reads none."""
        old = young_since()
        return {path: facts_of(status, old) for path, _ in self._walk("") if (status := self._stat(path))}

    def find_changed_links(self) -> list[str]:
        """Return the links with other facts than known; forget those that are gone."""
        found = []
        for path in list(self.links):
            known, status = self.files.get(path), self._stat(path)
            if (status and facts_of(status, 0)[:3]) != (known and known[:3]):
                found.append(path)
            elif status is None and not self.is_link(path):
                self.links.remove(path)
        return found

    def is_quick(self, paths: list[str]) -> bool:
        """Return whether to compare these paths takes less time than to hand them to a thread: few small files."""
        if len(paths) > FEW or not all(path and not path.endswith("/") for path in paths):
            return False
        sizes = (status.st_size for path in paths if (status := self._stat(path)))
        return all(size <= SMALL_BYTES for size in sizes)

    def compare(self, paths: Iterable[str]) -> list[Change]:
        """Return the differences of these files and of all files in these folders; `apply` takes one as known.

        A file that is named is read, whatever its facts: a write through a map may change its content alone.
        """
        asked = set(paths)
        changes = [
            change
            for path in sorted(self._candidates(asked))
            if (change := self._difference(path, is_named=path in asked))
        ]
        gone = {self.files[path][:3]: path for path, kind, *_ in changes if kind == "deleted"}
        return [_add_origin(change, gone) for change in changes] if gone else changes

    def recheck(self, changes: Iterable[Change]) -> list[Change]:
        """Return the changes; a deleted file that is there again is compared anew."""
        asked = (
            change
            if change.fingerprint or self._stat(change.path) is None
            else self._difference(change.path, is_named=True)
            for change in changes
        )
        return [change for change in asked if change is not None]

    def take_rewritten(self) -> set[str]:
        """Return the files that were written since the last call, and are as their last events said."""
        rewritten, self._rewritten = self._rewritten, set()
        return rewritten

    def repeat(self, paths: Iterable[str]) -> list[Change]:
        """Return changes for paths to fire again as they are."""
        known = ((path, self.files.get(path)) for path in sorted(paths))
        return [Change(path, "modified" if file else "deleted", file, again=True) for path, file in known]

    def apply(self, change: Change) -> None:
        """Take a change as known."""
        if change.fingerprint is None:
            self._forget(change.path)
        else:
            self.files[change.path] = change.fingerprint
            if self._index is not None:
                self._index.add(change.path)

    def holds(self, change: Change, digest: str) -> bool:
        """Return whether a file's content has this SHA-256, in hexadecimal digits."""
        file = change.fingerprint
        if file is None:
            return False
        if file.size > HASHED_BYTES:
            with suppress(OSError), open(self._root + change.path, "rb") as whole:  # noqa: PTH123 - as below
                return file_digest(whole, "sha256").hexdigest() == digest
            return False
        return file.content == bytes.fromhex(digest)[:DIGEST_BYTES]

    def _candidates(self, paths: Iterable[str]) -> set[str]:
        found, folders = set(), set()
        for path in paths:
            if path and not path.endswith("/"):
                found.add(path)
            elif path == "" or self._recursive:
                folders.add(path)
        found = set(filter(self.counts, found))
        if folders:
            self.unreadable.forget_below(folders)
            found.update(filter(self._still_counts, self._list_known(folders)))
            found.update(path for path, _ in self._walk_all(folders))
        return found

    def _list_known(self, folders: set[str]) -> list[str]:
        """Return the known files below some folders."""
        if "" in folders:
            return list(self.files)
        if self._index is None:
            self._index = FolderIndex(self.files)
        return [path for folder in find_outermost(folders) for path in self._index.find_below(folder)]

    def _still_counts(self, path: str) -> bool:
        """Return whether a known file counts; forget one that does not."""
        if not self.counts(path):
            self._forget(path)
            return False
        return True

    def _forget(self, path: str) -> None:
        self._young.pop(path, None)
        if self.files.pop(path, None) is not None and self._index is not None:
            self._index.discard(path)

    def _walk_all(self, folders: Iterable[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files below some folders, each once."""
        for folder in find_outermost(folders):
            if self.counts(folder):
                yield from self._walk(folder)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files below a folder, but for folders that cannot be read, or vanish."""
        folders, counts = [folder], self.counts
        while folders and not self._abandoned():
            folder = folders.pop()
            for entry in self._list(folder):
                path = folder + entry.name
                try:
                    is_folder = entry.is_dir(follow_symlinks=False)
                except OSError as error:  # of a file system with names alone in its lists
                    self.unreadable.add(path, error)
                    continue
                if not is_folder:
                    if counts(path):
                        if entry.is_symlink():
                            self.links.add(path)
                        yield path, entry
                elif self._recursive and counts(path + "/"):
                    folders.append(path + "/")

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        """Enter a folder, and return its entries; none of an unreadable one."""
        is_entered = True
        try:
            if (entering := self.entering) is not None:  # `stop` takes it away meanwhile
                entering(folder)
        except OSError as error:
            if error.errno in LIMITS:
                raise
            is_entered = False
        try:
            with os.scandir(self._root + folder) as entries:
                found = list(entries)
        except OSError as error:
            self.unreadable.add(folder, error)
            return []
        if not is_entered:  # a security module may forbid the watch alone, or the folder was opened just now
            self.unreadable.add_content(folder)
        return found

    def _stat(self, path: str) -> os.stat_result | None:
        """Return the status of a regular file, None without a readable one."""
        try:
            return stat_file(self._root + path)
        except OSError as error:
            self.unreadable.add(path, error)
            return None

    def _difference(self, path: str, *, is_named: bool) -> Change | None:
        if self._abandoned() or self.unreadable.covers(path):
            return None
        before, place = self.files.get(path), self._root + path
        try:
            status = stat_file(place)
        except OSError as error:
            self.unreadable.add(path, error)
            return None
        if status is None:
            return Change(path, "deleted", None) if before else None
        try:
            after = read_fingerprint(place, status, None if is_named else before)
        except OSError as error:
            if error.errno == errno.EACCES:
                self.unreadable.add_content(path)
            elif error.errno not in GONE:
                self.unreadable.add(path, error)
                return None
            after = stand_in(status, before)
        was_young = self._young.pop(path, None)
        changed_at = before and (before.ctime or was_young)
        if after.ctime == UNSURE:
            self._young[path] = status.st_ctime_ns
        if status.st_nlink > 1 or ((before is None or before.inode != after.inode) and self.is_link(path)):
            self.links.add(path)
        if before is None:
            return Change(path, "created", after)
        if after.content != before.content:
            return Change(path, "modified", after)
        is_swapped = after.inode != before.inode and self.is_link(
            path
        )  # it leads to another file, and none was written
        if not is_swapped and (after[:3] != before[:3] or changed_at not in (None, status.st_ctime_ns)):
            self._rewritten.add(path)  # an old time stamp may have been put back
        self.files[path] = after  # the next look need not read it
        return None

    def is_link(self, path: str) -> bool:
        """Return whether a path is a symbolic link."""
        return os.path.islink(self._root + path)  # noqa: PTH114 - as below


def _add_origin(change: Change, gone: dict[tuple[int, int, int], str]) -> Change:
    """Add the origin of a created file: the deleted one with its inode, size and time."""
    if change.kind != "created" or change.fingerprint is None:
        return change
    return change._replace(moved_from=gone.get(change.fingerprint[:3]))
