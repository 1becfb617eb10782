"""Translate errors of SQLite and the file system into errors of the store."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from contextlib import contextmanager
from json import JSONDecodeError
from typing import TYPE_CHECKING

from amplifier_core.descriptors import EXHAUSTED, NO_DESCRIPTOR, lacks_descriptors
from amplifier_core.errors import StoreDamaged, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class DamageError(Exception):
    """Report data differing from the written data; the text completes "is damaged (…)"."""


class IndexDamage(DamageError):
    """Report an index without the entry of a row."""


SHARED_MEMORY = 32 * 1024
"""Bytes of the file beside a log."""
_PERMISSIONS = "Check that you may write the file and its folder"
_FULL = "the disk is full; what was acknowledged is kept. Free some space and try again"
_TOO_LARGE = "this process may write no larger file; what was acknowledged is kept. Raise the limit: ulimit -f"
_EXHAUSTED = f"cannot be opened: {NO_DESCRIPTOR}"
_LOCKED = "is locked by another process. Try again when that one has finished"
_NO_FUNCTION = ("unknown function", "no such function")
_DROP = "Drop it in that program, or in a store with: amplifier store check --repair; or restore another backup"
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: f"cannot be written. {_PERMISSIONS}",
    sqlite3.SQLITE_PERM: f"cannot be opened. {_PERMISSIONS}",
    sqlite3.SQLITE_AUTH: f"cannot be opened. {_PERMISSIONS}",
    sqlite3.SQLITE_CANTOPEN: f"cannot be opened. {_PERMISSIONS}",
}

_DAMAGE = (
    "no such table",
    "no such column",
    "Could not decode",
    "table sessions already exists",
    "table histories already exists",
    "index sessions_by_parent already exists",
    "index deliveries_by_trigger already exists",
    "index events_by_id already exists",
    "table triggers already exists",
    "table documents already exists",
    "index deliveries_open already exists",
    "table message_spans already exists",
    "table delivery_counts already exists",
    "table session_texts already exists",
    "duplicate column name",
    "malformed JSON",
)
"""Beginnings of SQLite's messages about changed files, for errors without a code of their own."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise `store_error` for an error in the block."""
    try:
        yield
    except Exception as error:
        raised = store_error(path, error)
        if raised is error:
            raise
        raise raised from error


def store_error(path: Path, error: Exception) -> Exception:
    """Return the error to raise for `error`: a `StoreError` for damage, SQLite and the file system. Raises nothing."""
    if isinstance(error, sqlite3.IntegrityError):  # None where a record must have a value; ids are checked before
        return ValueError(str(error))
    if isinstance(error, sqlite3.Error):
        try:
            return _from_sqlite(path, error)
        except OSError as cause:  # a look at the file fails as SQLite did, and says more: its mount is dead, say
            return store_error(path, cause)
    if isinstance(error, IndexDamage):
        return StoreDamaged(path, f"is damaged ({error}). Rebuild its indexes: amplifier store check --repair")
    if isinstance(error, DamageError):
        return damage_error(path, f"is damaged ({error})")
    if isinstance(error, UnicodeDecodeError):  # also from SQLite's own message about unreadable text
        return damage_error(path, "is damaged (a text is not UTF-8)")
    if isinstance(error, JSONDecodeError):
        return damage_error(path, f"is damaged (a value is not JSON: {error})")
    if isinstance(error, OSError) and not isinstance(error, StoreError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(path, _FULL)
        if error.errno == errno.EFBIG:
            return StoreUnavailable(path, _TOO_LARGE)
        if error.errno in EXHAUSTED:
            return StoreUnavailable(path, _EXHAUSTED)
        told = f"cannot be opened ({error.strerror or error}). {_PERMISSIONS}"
        return StoreUnavailable(path, told, needs_person=isinstance(error, PermissionError))
    return error


def damage_error(path: Path, what: str) -> StoreDamaged:
    """Return the error for a damaged file; `what` completes "<path>: "."""
    return StoreDamaged(
        path,
        f"{what}. Go back to a backup: amplifier store restore; or save the readable part: amplifier store salvage",
    )


def closed_error(path: Path) -> StoreUnavailable:
    """Return the error for a use after `close`."""
    return StoreUnavailable(path, "the store is closed. Open it again to use it")


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether another connection holds what this one needs."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_index_damage(error: BaseException | None) -> bool:
    """Return whether a damaged index may be the cause of `error`."""
    if isinstance(error, sqlite3.DatabaseError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
    return isinstance(error, IndexDamage)


def _has_no_room(path: Path) -> bool:
    """Return whether the disk has no room for the shared memory of a log, for which SQLite reports an I/O error."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < SHARED_MEMORY


def _from_sqlite(path: Path, error: sqlite3.Error) -> StoreError:
    # the lowest byte is the kind of failure, the others its circumstances: https://sqlite.org/rescode.html
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return damage_error(path, "is not a SQLite database")
    if code == sqlite3.SQLITE_CORRUPT or str(error).startswith(_DAMAGE):
        return damage_error(path, f"is damaged ({error})")
    if code == sqlite3.SQLITE_IOERR and _has_no_room(path):
        return StoreUnavailable(path, _FULL)
    if code == sqlite3.SQLITE_IOERR:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        files = [each for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
        largest = max((each.stat().st_size for each in files), default=0)
        if most != resource.RLIM_INFINITY and most < largest + SHARED_MEMORY:
            return StoreUnavailable(path, _TOO_LARGE)
        return StoreUnavailable(path, f"cannot be read or written ({error}). Check the disk that it is on")
    if code == sqlite3.SQLITE_CANTOPEN and lacks_descriptors():
        return StoreUnavailable(path, _EXHAUSTED)
    if str(error).startswith(_NO_FUNCTION):
        return StoreUnavailable(path, f"has an index or a column of another program ({error}). {_DROP}")
    if code in _UNAVAILABLE:
        text, place = _UNAVAILABLE[code], path if path.exists() else path.parent
        is_closed = text.endswith(_PERMISSIONS) and not os.access(place, os.W_OK)
        # A read-only file system may be writable again soon.
        return StoreUnavailable(path, text, needs_person=is_closed and not os.statvfs(place).f_flag & os.ST_RDONLY)
    return StoreUnavailable(path, f"SQLite failed: {error}")
