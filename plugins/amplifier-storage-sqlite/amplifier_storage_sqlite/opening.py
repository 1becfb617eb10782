"""Make and open the file: complete or not at all, readable by its owner alone, durable."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes
from weakref import WeakSet

from amplifier_core.errors import StoreUnavailable
from amplifier_core.process_forks import require_process

from .faults import DamageError, IndexDamage, damage_error, translate_errors
from .ordering import has_wrong_order
from .schema import MIGRATIONS, checked_version, migrate

if TYPE_CHECKING:
    from .sessions import KnownSession

logger = logging.getLogger(__name__)

_PRAGMAS = (
    "PRAGMA synchronous = FULL",  # a commit returns when it would survive a power cut
    "PRAGMA fullfsync = ON",  # without it macOS leaves written data in the drive's cache
    "PRAGMA journal_size_limit = 67108864",  # a log grown by one large write shrinks again
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten: not each build of SQLite does that
    "PRAGMA cell_size_check = ON",  # a read notices a page contradicting itself
)

_SMALLEST_PAGE = 512  # bytes: https://sqlite.org/fileformat.html

CHECKED_AT_OPEN = 1024 * 1024
"""Bytes of the largest file checked completely at every opening: all rows are looked up in all indexes, in 5 ms."""


FRAMES = 1_000
"""Pages in the log from which a commit folds it into the file: SQLite's default."""
MOST_KNOWN = 256
"""Records that a writing connection knows; some kilobytes each."""

COPY_TABLE = "unfinished_copy"
"""The table with the state of a copy into this file; it is there until the copy is finished."""


_opened: WeakSet[Connection] = WeakSet()
_left: list[Connection] = []
"""The connections of the processes that this one is a fork of, which no fork may close, not even by forgetting them."""
os.register_at_fork(after_in_child=lambda: _left.extend(_opened))


class Connection(sqlite3.Connection):
    """A connection of a store, with the time (monotonic) until which its index of session ids counts as whole.

    A fork neither uses nor closes it: https://sqlite.org/howtocorrupt.html, 2.6.
    """

    whole_until = 0.0
    place: tuple[int, int] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process = os.getpid()
        _opened.add(self)

    def close(self) -> None:
        """Close it in its own process."""
        if os.getpid() == self.process:
            _opened.discard(self)
            super().close()


def require_own(process: int, path: Path) -> None:
    """Raise `StoreUnavailable` in a fork of the process that opened the file at `path`.

    There SQLite counts the locks of that process as its own, also for a new connection: writes would be lost.
    """
    remedy = "Close it before the fork and open it after, or start the process anew: multiprocessing, with spawn"
    require_process(process, path, remedy)


class WritingConnection(Connection):
    """The connection of a writer; it knows the records of the sessions whose turns it wrote last.

    Invariant: within a transaction of the writer, `known_sessions` holds what is in the file. `begin` forgets
    them after a commit of another connection, and whoever rolls back, or changes a record otherwise, forgets them too.
    `last_number` is no less than the numbers of sessions in the file (`ordering`), or None.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience: float = kwargs["timeout"]
        self._is_hurried: bool | None = False
        self.known_sessions: dict[str, KnownSession] = {}
        self.last_number: int | None = None
        self._version = -1

    def hurry(self, is_hurried: bool) -> None:
        """Let the next transactions wait for no other process and leave the log as it is; or do both, as at first."""
        if is_hurried != self._is_hurried:
            self._is_hurried = None  # Ctrl-C in the middle leaves neither
            self.execute(f"PRAGMA busy_timeout = {0 if is_hurried else round(self._patience * 1000)}")
            self.execute(f"PRAGMA wal_autocheckpoint = {0 if is_hurried else FRAMES}")
            self._is_hurried = is_hurried

    def begin(self, path: Path) -> None:
        """Begin a transaction that writes to the file at `path`.

        Raises `StoreConflict` in a transaction if a newer version has migrated the file since it was opened.
        """
        self.execute("BEGIN IMMEDIATE")
        [(version,)] = self.execute("PRAGMA data_version")
        if version != self._version:
            checked_version(self, path)
            self.last_number = None
        if version != self._version or len(self.known_sessions) > MOST_KNOWN:
            self.known_sessions.clear()
            self._version = version

    def undo(self, statement: str = "ROLLBACK") -> None:
        """Roll back a transaction, or a part of it."""
        self.known_sessions.clear()
        self.last_number = None
        self.execute(statement)


def open_store(path: Path, busy_timeout: float) -> WritingConnection:
    """Return a writing connection to a file of this version; make a missing file.

    Raises `StoreUnavailable`, `StoreDamaged`.
    """
    if sqlite3.sqlite_version_info < (3, 35):
        raise StoreUnavailable(path, f"SQLite {sqlite3.sqlite_version} is too old. Use a Python with 3.35 or newer")
    with translate_errors(path):
        make_store(path)
        restrict(path)
        db = connect(path, busy_timeout, WritingConnection)
        assert isinstance(db, WritingConnection)
        try:
            if has_copy(db):
                raise StoreUnavailable(
                    path,
                    "holds an unfinished copy. Finish it with: amplifier store copy FROM TO; or remove the file",
                )
            _check_end(db, path)
            if path.stat().st_size <= CHECKED_AT_OPEN:
                try:
                    check(db)
                    if has_wrong_order(db):  # as rows of an older version that wrote on after a migration
                        raise IndexDamage("sessions are listed in a wrong order")
                except DamageError:
                    from .checking import rebuild_indexes

                    if not rebuild_indexes(db):  # one bad index makes nothing unreadable
                        raise
                    logger.warning("%s: damaged indexes were rebuilt from their tables. Check the disk", path)
        except BaseException:
            db.close()
            raise
        return db


def connect(path: Path, busy_timeout: float, kind: type[Connection] = Connection) -> Connection:
    """Return a connection to an existing file, in autocommit mode and usable from any thread.

    An older file is brought to this version before. Raises `StoreUnavailable` if another process has it open,
    `StoreConflict` for a file of a newer version.
    """
    db = _connect(path, busy_timeout, kind)
    try:
        version = checked_version(db, path)
    except BaseException:
        db.close()
        raise
    if version < len(MIGRATIONS):
        from .migrating import migrate_alone  # not at import: most processes open a file of this version

        db.close()
        migrate_alone(path, busy_timeout)
        db = _connect(path, busy_timeout, kind)
    db.execute("PRAGMA foreign_keys = ON")
    return db


def raw_connection(path: Path, busy_timeout: float, kind: type[Connection] = Connection) -> Connection:
    """Return a connection to an existing file, which it has not read yet. Raises `StoreUnavailable` in a fork."""
    place = place_of(path)
    for each in _left:
        if each.place == place:
            require_own(each.process, path)
    db = sqlite3.connect(
        f"file://{quote_from_bytes(os.fsencode(path))}?mode=rw",  # `Path.as_uri` imports much since Python 3.14
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
    )
    db.place = place
    return db


def make_whole(path: Path) -> None:
    """Make the tables of a file that nobody else knows, or bring them to this version, on the disk and without a log.

    Then the file may be linked or moved. Closing a connection folds the log too, but says nothing when the disk is too
    full for that. Raises `StoreConflict` for a newer version, `StoreDamaged` for another program's.
    """
    with closing(_connect(path, 0.0)) as db:
        migrate(db, path)
        [(busy, _, _)] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreUnavailable(path, "is in use, although it is new. Try again")


def _connect(path: Path, busy_timeout: float, kind: type[Connection] = Connection) -> Connection:
    db = raw_connection(path, busy_timeout, kind)
    try:
        if not path.stat().st_size:  # a new file can give freed room back; the pragma would write to others each time
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreUnavailable(path, "its file system cannot hold a write-ahead log. Use a folder on a local disk")
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def has_copy(db: sqlite3.Connection) -> bool:
    """Return whether a copy into the file is unfinished."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (COPY_TABLE,)).fetchone())


def place_of(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at `path`, None without one."""
    try:
        found = os.stat(path)  # noqa: PTH116  # before every write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_place(path: Path, place: tuple[int, int] | None) -> None:
    """Raise `StoreUnavailable` if the open file is no longer at `path`: its further writes would be lost."""
    if place_of(path) != place:
        gone = "was replaced by another file" if path.exists() else "was removed"
        raise StoreUnavailable(path, f"{gone} while in use. Stop everything that uses it, and start again")


def check(db: sqlite3.Connection) -> None:
    """Raise `DamageError` when the pages or the indexes of a file contradict themselves."""
    [(found,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
    if found != "ok":
        raise DamageError(found.replace("\n", " "))


def _check_end(db: sqlite3.Connection, path: Path) -> None:
    """Raise `DamageError` for a file cut within its last page: SQLite would read zeros there.

    While there is a log, the missing end may be in it.
    """
    db.execute("BEGIN")
    try:
        size = int(db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])
        log = path.with_name(path.name + "-wal")
        if path.stat().st_size < size and not (log.exists() and log.stat().st_size):
            raise DamageError("its end is missing")
    finally:
        db.execute("ROLLBACK")


def make_store(path: Path) -> None:
    """Make a missing file and its folders: elsewhere and linked into place, as an empty file has lost its content.

    The log names the newest backup of a file that was lost.
    """
    for missing in [each for each in (*reversed(path.parent.parents), path.parent) if not each.exists()]:
        missing.mkdir(0o700, exist_ok=True)
        missing.chmod(0o700)  # whatever the umask took away
    if os.path.lexists(path):
        return
    from tempfile import TemporaryDirectory

    from .copying import backups_of

    with TemporaryDirectory(prefix=".new-store-", dir=path.parent) as folder:
        Path(folder).chmod(0o700)
        new = Path(folder) / "store"
        new.touch(0o600)
        new.chmod(0o600)
        make_whole(new)
        try:
            path.hardlink_to(new)
        except FileExistsError:
            return  # another process was faster; its file is as good
    if backups := backups_of(path):
        text = "%s was not there: a new store is made, and is empty. To go back to %s: amplifier store restore"
        logger.warning(text, path, backups[0])


def restrict(path: Path) -> None:
    """Make the file private to its owner; SQLite gives the -wal and -shm files the same mode.

    By name, never by descriptor: closing a descriptor would drop this process's locks on the file.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(path, "is not a file. Choose another path")
    if found.st_size < _SMALLEST_PAGE:  # SQLite would take such a rest for a new database
        raise damage_error(path, f"is {'empty' if not found.st_size else 'cut short'}: no store is that small")
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if each.exists() and stat.S_IMODE(each.stat().st_mode) & 0o077:
            each.chmod(0o600)
