"""Read what a bundle runs as code: find its files, hash them, and notice changes without reading them again.

A file counts as changed by its bytes. Its stamp (size, times, inode) only spares the reading: the change time cannot be
set by a program, and a file changed within `SETTLED` seconds before its reading is read again.
"""
# Paths are text here: all files of code are looked at before each session.
# ruff: noqa: PTH100, PTH112, PTH116, PTH118, PTH123

from __future__ import annotations

import os
import stat
import time
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.imported_folders import may_hold_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SUFFIXES = (".py", ".pyw", ".pyc", ".pyz", ".pth", ".so", ".pyd", ".dll", ".dylib", ".zip", ".egg")
"""The endings of files that Python executes, or that make it execute others."""
SETTLED = 2.0
"""Seconds: some file systems count no finer."""
LARGEST = 1 << 30
"""Bytes of a file that is hashed; a larger one counts by its stamp."""
MISSING = "missing"
"""The digest of what is no regular file."""

Stamp = tuple[int, int, int, int, int]
"""Size, modification and change time in nanoseconds, inode, and device."""


class Seen(NamedTuple):
    """The SHA-256 of a file in hex, and its stamp; None: the file is too young for one."""

    digest: str
    stamp: Stamp | None = None


def path_of(path: Path | str) -> str:
    """Return the real folder of a file with its own name: a link to a file elsewhere is a file of its own."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of `roots`, or below it."""
    return any(path == root or path.startswith(root + os.sep) for root in roots)


def owner_of(place: str) -> int:
    """Return the user that owns a place; -1 for a missing one."""
    try:
        return os.stat(place).st_uid
    except OSError:
        return -1


def read_stamp(path: str) -> Stamp | None:
    """Return the stamp of a regular file, or of the one that a link names; None for anything else."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def read_seen(path: str) -> Seen:
    """Read and hash a file."""
    before = read_stamp(path)
    if before is None:
        return Seen(MISSING)
    if before[0] > LARGEST:
        return Seen(f"too large to hash, {before[:3]}")
    digest = sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return Seen(MISSING)
    is_old = time.time() - max(before[1], before[2]) / 1e9 > SETTLED
    return Seen(digest.hexdigest(), before if is_old and read_stamp(path) == before else None)


def find_code(source: Path | str) -> Iterator[str]:
    """Yield the files of code at a `source`: the file itself, or those in the folder, also behind links.

    What is compiled in `__pycache__` does not count: it is never run (`amplifier_core.source_files`).
    """
    if not os.path.isdir(source):
        yield path_of(source)
        return
    seen: set[str] = set()
    for folder, inner, names in os.walk(os.path.realpath(source), followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            inner.clear()
            continue
        seen.add(real)
        inner[:] = filter(may_hold_code, inner)
        yield from (os.path.join(folder, name) for name in names if name.lower().endswith(SUFFIXES))
