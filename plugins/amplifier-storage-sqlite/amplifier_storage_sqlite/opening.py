"""The file: made whole or not at all, readable by its owner alone, opened with everything durability needs."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

from amplifier_core.errors import StoreUnavailable

from .faults import Damage, damaged, translated
from .schema import migrate

_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # a commit returns when it would survive a power cut
    "PRAGMA fullfsync = ON",  # without it macOS leaves written data in the drive's cache
    "PRAGMA journal_size_limit = 67108864",  # what one large write leaves of its log is given back
    "PRAGMA cell_size_check = ON",  # a page that contradicts itself is said when it is read
)

_SMALLEST_PAGE = 512  # bytes: https://sqlite.org/fileformat.html

CHECKED_AT_OPEN = 16 * 1024 * 1024
"""Bytes up to which a file is checked whole when it is opened, at 0.4 ms for each of its megabytes."""


def open_store(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Return a connection that may write, to a file that is there and of this version.

    Raises `StoreUnavailable`, `StoreDamaged`.
    """
    if sqlite3.sqlite_version_info < (3, 35):
        raise StoreUnavailable(path, f"SQLite {sqlite3.sqlite_version} is too old. Use a Python with 3.35 or newer")
    with translated(path):
        _make_folder(path.parent)
        if not os.path.lexists(path):
            _make_file(path, busy_timeout)
        _restrict(path)
        db = connect(path, busy_timeout)
        try:
            _check_end(db, path)
            if path.stat().st_size <= CHECKED_AT_OPEN:
                check(db)
        except BaseException:
            db.close()
            raise
        return db


def connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Return a connection to the file, which must exist, in autocommit mode and usable from any thread."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreUnavailable(path, "its file system cannot hold a write-ahead log. Use a folder on a local disk")
        for pragma in _PRAGMAS:
            db.execute(pragma)
        migrate(db, path)
        db.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        db.close()
        raise
    return db


def check(db: sqlite3.Connection) -> None:
    """Raise `Damage` when the pages or the indexes of a file contradict themselves."""
    [(found,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
    if found != "ok":
        raise Damage(found.replace("\n", " "))


def _check_end(db: sqlite3.Connection, path: Path) -> None:
    """Raise `Damage` for a file that is cut within its last page, which SQLite would read as zeros.

    As long as there is a log, what is missing may be in there.
    """
    db.execute("BEGIN")
    try:
        size = int(db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])
        log = path.with_name(path.name + "-wal")
        if path.stat().st_size < size and not (log.exists() and log.stat().st_size):
            raise Damage("its end is missing")
    finally:
        db.execute("ROLLBACK")


def _make_folder(folder: Path) -> None:
    for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
        missing.mkdir(0o700, exist_ok=True)
        missing.chmod(0o700)  # whatever the umask took away


def _make_file(path: Path, busy_timeout: float) -> None:
    """Make the file elsewhere and link it into place: so one that is there and empty has lost what it held."""
    with TemporaryDirectory(prefix=".new-store-", dir=path.parent) as folder:
        Path(folder).chmod(0o700)
        new = Path(folder) / "store"
        new.touch(0o600)
        new.chmod(0o600)
        connect(new, busy_timeout).close()
        try:
            path.hardlink_to(new)
        except FileExistsError:
            return  # another process was faster; its file is as good


def _restrict(path: Path) -> None:
    """Take the file away from everyone but its owner; SQLite makes the -wal and -shm files like it.

    By name and never by descriptor: closing one would drop the locks that this process holds on the file.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(path, "is not a file. Choose another path")
    if found.st_size < _SMALLEST_PAGE:  # SQLite would take what is left of such a file for a new database
        raise damaged(path, f"is {'empty' if not found.st_size else 'cut short'}: no store is that small")
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if each.exists() and stat.S_IMODE(each.stat().st_mode) & 0o077:
            each.chmod(0o600)
