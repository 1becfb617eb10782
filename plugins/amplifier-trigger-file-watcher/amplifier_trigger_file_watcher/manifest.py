"""What the watched files looked like when they were last looked at.

A change is what differs from that, whatever the operating system said: an editor's rename over the old file is one
modification, a file that came and went is nothing, and so is one whose time stamp alone was touched.
"""

from __future__ import annotations

import os
import stat
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HASHED_BYTES = 16 * 1024 * 1024
"""Larger files are known by size and time alone."""
YOUNG = 2_000_000_000
"""Nanoseconds within which a file may be written twice with one time stamp (FAT counts in two seconds)."""
UNSURE = "0" * 12
"""The signature of a young file: it is read again next time."""

Kind = Literal["created", "modified", "deleted"]


class Fingerprint(NamedTuple):
    """What a file looked like: `signature` says without reading whether `content` may have changed."""

    signature: str
    content: str


class Change(NamedTuple):
    """How a file differs from the manifest; `fingerprint` is None for one that is gone."""

    path: str
    kind: Kind
    fingerprint: Fingerprint | None


class Manifest:
    """The files below `base` that `wanted` lets through, each with its fingerprint.

    A path is relative to `base`, with slashes; that of a folder ends in one, and '' is `base` itself. While
    `abandoned()` holds, `compare` returns early with a part of its result.
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
        self._wanted, self._recursive, self._abandoned = wanted, recursive, abandoned
        self.files: dict[str, Fingerprint] = {}

    def compare(self, paths: Iterable[str]) -> list[Change]:
        """Return how these files, and all files in these folders, differ; `apply` then takes each as known."""
        return [change for path in sorted(self._candidates(paths)) if (change := self._difference(path))]

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

    def _candidates(self, paths: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for path in paths:
            if _is_folder(path):
                found.update(known for known in self.files if known.startswith(path))
                found.update(self._walk(path))
            elif self._wanted(path):
                found.add(path)
        return found

    def _walk(self, folder: str) -> Iterator[str]:
        """Yield the files below a folder. Folders that cannot be read, or vanish, are left out."""
        try:
            entries = list(os.scandir(self._root + folder))
        except OSError:
            return
        for entry in entries:
            if self._abandoned():
                return
            path = folder + entry.name
            if not entry.is_dir(follow_symlinks=False):
                if self._wanted(path):
                    yield path
            elif self._recursive and self._wanted(path + "/"):
                yield from self._walk(path + "/")

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
    signature = _signature(status)
    if known and signature == known.signature != UNSURE:
        return known
    return Fingerprint(signature, _content(path, status))


def _is_folder(path: str) -> bool:
    return path == "" or path.endswith("/")


def _signature(status: os.stat_result) -> str:
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - changed < YOUNG:  # compared with the file system's time, which no test moves
        return UNSURE
    facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return blake2b(repr(facts).encode(), digest_size=6).hexdigest()


def _content(path: str, status: os.stat_result) -> str:
    if status.st_size <= HASHED_BYTES:
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
                return blake2b(file.read(), digest_size=8).hexdigest()
        except OSError:
            pass  # unreadable, or gone again
    return blake2b(repr((status.st_size, status.st_mtime_ns)).encode(), digest_size=8).hexdigest()
