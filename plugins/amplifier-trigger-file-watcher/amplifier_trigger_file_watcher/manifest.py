"""What the watched files looked like when they were last looked at.

A change is what differs from that, whatever the operating system said: an editor's rename over the old file is one
modification, a file that came and went is nothing, and so is one whose time stamp alone was touched.

At the very first look files are not read: that takes a multiple of the time. `read_more` does it afterwards. A file
that is touched before it was read counts as modified: what was in it is not known.
"""

from __future__ import annotations

import os
import stat
import time
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HASHED_BYTES = 16 * 1024 * 1024
"""Larger files are known by size and time alone."""
YOUNG = 2_000_000_000
"""Nanoseconds within which a file may be written twice with one time stamp (FAT counts in two seconds)."""
UNSURE = 0
"""The `ctime` of a young file: it is read again next time."""
UNREAD = b""
"""The `content` of a file that was not read yet."""
DIGEST_BYTES = 8
SIGNED = 2**63 - 1
"""What of an inode fits into a signed number; some file systems use one bit more."""

Kind = Literal["created", "modified", "deleted"]
Facts: TypeAlias = tuple[int, int, int, int]


class Fingerprint(NamedTuple):
    """What a file looked like: all but `content` says without reading whether that may have changed.

    Times are nanoseconds; `content` is the beginning of its SHA-256.
    """

    size: int
    mtime: int
    inode: int
    ctime: int
    content: bytes


class Change(NamedTuple):
    """How a file differs from the manifest; `fingerprint` is None for one that is gone."""

    path: str
    kind: Kind
    fingerprint: Fingerprint | None
    moved_from: str | None = None
    """What the created file was called before."""


class Manifest:
    """The files below `base` that `wanted` lets through, each with its fingerprint.

    A path is relative to `base`, with slashes; that of a folder ends in one, and '' is `base` itself. Before a folder
    is looked at, `entering` is called with it. While `abandoned()` holds, everything returns early with a part.
    """

    def __init__(
        self,
        base: str,
        wanted: Callable[[str], bool],
        *,
        recursive: bool,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = base.rstrip(os.sep) + os.sep
        self._recursive, self._abandoned = recursive, abandoned
        self._unread: list[str] = []
        self.wanted = wanted
        self.entering: Callable[[str], None] | None = None
        self.files: dict[str, Fingerprint] = {}

    def begin(self) -> None:
        """Take what is there as known, mostly unread. Raises the `OSError` of `entering`."""
        old, files = time.time_ns() - YOUNG, {}
        for path, entry in self._walk(""):
            facts = _facts_of(entry, old)
            if facts is not None and facts[3] != UNSURE:
                files[path] = Fingerprint(*facts, UNREAD)
            elif facts is not None and (known := fingerprint(entry.path)):
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
                self.files[path] = _read_if_unchanged(self._root + path, known)
        return bool(self._unread)

    def enter(self, folders: Iterable[str]) -> None:
        """Walk through new folders, for the sake of `entering`, whose `OSError` it raises."""
        if self.entering is not None and self._recursive:
            for _ in self._walk_all(folders):
                pass

    def facts(self) -> dict[str, Facts]:
        """Return what can be said of every file without reading it."""
        old = time.time_ns() - YOUNG
        return {path: facts for path, entry in self._walk("") if (facts := _facts_of(entry, old))}

    def compare(self, paths: Iterable[str]) -> list[Change]:
        """Return how these files, and all files in these folders, differ; `apply` then takes each as known."""
        changes = [change for path in sorted(self._candidates(paths)) if (change := self._difference(path))]
        gone = {self.files[path][:3]: path for path, kind, *_ in changes if kind == "deleted"}
        return [_moved(change, gone) for change in changes] if gone else changes

    def unchanged(self, paths: Iterable[str]) -> list[Change]:
        """Return changes for paths that look as they did, though something may have been seen in between."""
        known = ((path, self.files.get(path)) for path in sorted(paths))
        return [Change(path, "modified" if file else "deleted", file) for path, file in known]

    def apply(self, change: Change) -> None:
        """Take a change as known."""
        if change.fingerprint is None:
            self.files.pop(change.path, None)
        else:
            self.files[change.path] = change.fingerprint

    def holds(self, change: Change, digest: str) -> bool:
        """Return whether a file's content is the one with this SHA-256, in hexadecimal digits."""
        file = change.fingerprint
        if file is None:
            return False
        if file.size > HASHED_BYTES:
            return _whole_digest(self._root + change.path) == digest
        return file.content == bytes.fromhex(digest)[:DIGEST_BYTES]

    def _candidates(self, paths: Iterable[str]) -> set[str]:
        found, folders = set(), set()
        for path in paths:
            if not _is_folder(path):
                found.add(path)
            elif path == "" or self._recursive:
                folders.add(path)
        found = set(filter(self.wanted, found))
        if folders:
            found.update(path for path in list(self.files) if self._still_wanted(path, folders))
            found.update(path for path, _ in self._walk_all(folders))
        return found

    def _still_wanted(self, path: str, folders: set[str]) -> bool:
        """Return whether a known file lies in one of the folders; one that counts no more is forgotten."""
        if folders.isdisjoint(_above(path)):
            return False
        if not self.wanted(path):
            del self.files[path]
            return False
        return True

    def _walk_all(self, folders: Iterable[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files below some folders; those below two of them, once."""
        asked = set(folders)
        for folder in asked:
            if asked.isdisjoint(_above(folder)) and self.wanted(folder):
                yield from self._walk(folder)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files below a folder. Folders that cannot be read, or vanish, are left out."""
        folders, wanted = [folder], self.wanted
        while folders and not self._abandoned():
            folder = folders.pop()
            if self.entering is not None:
                self.entering(folder)
            for entry in _entries(self._root + folder):
                path = folder + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    if wanted(path):
                        yield path, entry
                elif self._recursive and wanted(path + "/"):
                    folders.append(path + "/")

    def _difference(self, path: str) -> Change | None:
        if self._abandoned():
            return None
        before = self.files.get(path)
        after = fingerprint(self._root + path, before)
        if after is None:
            return Change(path, "deleted", None) if before else None
        if before is None:
            return Change(path, "created", after)
        if after.content != before.content:
            return Change(path, "modified", after)
        self.files[path] = after  # touched: the next look need not read it
        return None


def fingerprint(path: str, known: Fingerprint | None = None) -> Fingerprint | None:
    """Return a file's fingerprint, None when there is no regular file; its content is `known`'s while nothing moved."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of 50,000 files takes longer than the call
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    facts = _facts(status, time.time_ns() - YOUNG)  # compared with the file system's time, which no test moves
    if known and known[:4] == facts and known.ctime != UNSURE:
        return known
    return Fingerprint(*facts, _content(path, status))


def _is_folder(path: str) -> bool:
    return path == "" or path.endswith("/")


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the nearest first."""
    while path:
        path = path[: path.rfind("/", 0, -1) + 1]
        yield path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _moved(change: Change, gone: dict[tuple[int, int, int], str]) -> Change:
    """Add where a created file comes from: the one that is gone and had its inode, size and time."""
    if change.kind != "created" or change.fingerprint is None:
        return change
    return change._replace(moved_from=gone.get(change.fingerprint[:3]))


def _facts(status: os.stat_result, old: int) -> Facts:
    """Return what can be said without reading; `old` is when a file must have changed last to be told from others."""
    mtime, ctime = status.st_mtime_ns, status.st_ctime_ns
    return status.st_size, mtime, status.st_ino & SIGNED, ctime if mtime < old > ctime else UNSURE


def _facts_of(entry: os.DirEntry[str], old: int) -> Facts | None:
    try:
        status = entry.stat()
    except OSError:
        return None
    return _facts(status, old) if stat.S_ISREG(status.st_mode) else None


def _read_if_unchanged(path: str, known: Fingerprint) -> Fingerprint:
    """Add its content to a fingerprint, unless the file is no longer the one that it is of."""
    try:
        old = time.time_ns() - YOUNG
        status = os.stat(path)  # noqa: PTH116 - as above
        content = _content(path, status)
        after = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return known
    same = stat.S_ISREG(status.st_mode) and _facts(status, old) == _facts(after, old) == known[:4]
    return known._replace(content=content) if same else known


def _content(path: str, status: os.stat_result) -> bytes:
    if status.st_size <= HASHED_BYTES:
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
                return sha256(file.read()).digest()[:DIGEST_BYTES]
        except OSError:
            pass  # unreadable, or gone again
    return sha256(repr((status.st_size, status.st_mtime_ns)).encode()).digest()[:DIGEST_BYTES]


def _whole_digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
