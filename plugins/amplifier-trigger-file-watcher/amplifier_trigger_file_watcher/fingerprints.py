"""Tell by a file's facts whether it may have changed, and know its content by a digest."""

from __future__ import annotations

import errno
import os
import stat
import time
from hashlib import sha256
from typing import NamedTuple, TypeAlias

GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""The errors of a path without a file; after any other one, a file may be there."""
HASHED_BYTES = 16 * 1024 * 1024
"""Larger files are known by size and time alone."""
YOUNG = 2_000_000_000
"""Nanoseconds within which a file may be written twice with one time stamp (FAT counts in two seconds)."""
UNSURE = 0
"""The `ctime` of a young file: it is read again next time."""
UNREAD = b""
"""The `content` of an unread file."""
DIGEST_BYTES = 8
SIGNED = 2**63 - 1
"""The part of an inode that fits into a signed number; some file systems use one bit more."""

Facts: TypeAlias = tuple[int, int, int, int]


class Fingerprint(NamedTuple):
    """The facts of a file, to tell without reading whether it may have changed, and its content.

    Times are nanoseconds; `content` is the beginning of its SHA-256.
    """

    size: int
    mtime: int
    inode: int
    ctime: int
    content: bytes


def fingerprint(path: str, known: Fingerprint | None = None) -> Fingerprint | None:
    """Return a file's fingerprint, None without a readable regular file.

    A file with the facts of `known` is not read.
    """
    status = None
    try:
        status = stat_file(path)
        return None if status is None else read_fingerprint(path, status, known)
    except OSError:
        return None if status is None else stand_in(status, known)


def stat_file(path: str) -> os.stat_result | None:
    """Return the status of a regular file, None without one. Raises `OSError` for an unreadable one."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of 50,000 files takes longer than the call
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None


def read_fingerprint(path: str, status: os.stat_result, known: Fingerprint | None) -> Fingerprint:
    """Return the fingerprint of a file; one with the facts of `known` is not read. Raises `OSError`."""
    facts = facts_of(status, young_since())
    if known and known[:4] == facts and known.ctime != UNSURE:
        return known
    return Fingerprint(*facts, read_content(path, status))


def stand_in(status: os.stat_result, known: Fingerprint | None) -> Fingerprint:
    """Return the fingerprint of a file with unreadable content: as known, or by another size and time."""
    facts = facts_of(status, young_since())
    return Fingerprint(*facts, known.content if known and known[:3] == facts[:3] else _size_and_time(status))


def young_since() -> int:
    """Return when youth begins: a file changed since is young. It is the file system's time; no test moves it."""
    return time.time_ns() - YOUNG


def facts_of(status: os.stat_result, old: int) -> Facts:
    """Return the facts of a file; one that changed after `old` is not sure to show its next change in them."""
    mtime, ctime = status.st_mtime_ns, status.st_ctime_ns
    return status.st_size, mtime, status.st_ino & SIGNED, ctime if mtime < old > ctime else UNSURE


def read_if_unchanged(path: str, known: Fingerprint) -> Fingerprint:
    """Add the content to a fingerprint, unless the file has changed since."""
    try:
        old = young_since()
        status = os.stat(path)  # noqa: PTH116 - as above
        content = read_content(path, status)
        after = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return known
    same = stat.S_ISREG(status.st_mode) and facts_of(status, old) == facts_of(after, old) == known[:4]
    return known._replace(content=content) if same else known


def read_content(path: str, status: os.stat_result) -> bytes:
    """Return the beginning of the SHA-256 of a file, which is read to its end. Raises `OSError`."""
    if status.st_size > HASHED_BYTES:
        return _size_and_time(status)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        return sha256(file.read()).digest()[:DIGEST_BYTES]


def _size_and_time(status: os.stat_result) -> bytes:
    return sha256(repr((status.st_size, status.st_mtime_ns)).encode()).digest()[:DIGEST_BYTES]
