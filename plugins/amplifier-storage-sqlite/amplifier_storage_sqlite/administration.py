"""Administer the file of a store, whether it opens or not: room, checks, backups, salvage, compaction."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import TYPE_CHECKING

from amplifier_core.errors import BackupNotFound, StoreConflict, StoreDamaged, StoreError, StoreUnavailable
from amplifier_core.storage import Compacted, Salvaged, StoreFault, StoreInfo, StoreUse

from .checking import (
    SALVAGE,
    damaged_pages,
    find_faults,
    find_strange,
    has_wrong_derived,
    lacks_indexes,
    rebuild_indexes,
    restore_indexes,
)
from .copying import BACKUPS, back_up, backups_of, flush, new_backup, stamp
from .faults import damage_error, is_locked, translate_errors
from .message_search import clear_index
from .opening import check, connect, make_whole, place_of, raw_connection, require_place, restrict
from .purging import LONGEST_PAUSE
from .schema import APPLICATION_ID, checked_version
from .values import unplain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.store_administration import RestoreLosses

logger = logging.getLogger(__name__)

PROBED = 16 * 1024 * 1024
"""Bytes of the largest file that a probe checks completely; the check takes a tenth of a second."""
STEP = 256
"""Pages given back in one transaction, so that a writer waits no longer than for another writer."""
REPLACED = ".replaced-"
"""In the name of a replaced store, between the name of the store and the time of the restore."""
SECONDS = 1.0
"""Time after which a compaction beside writers ends: whoever wants more calls again."""

_PARTS = ("", "_config", "_data", "_idx")
_KINDS = {
    "histories": "sessions",
    "delivery_counts": "deliveries",
    "cuts": "sessions",
    "sqlite_sequence": "events",
    "triggers": "trigger states",
    "trigger_states": "trigger states",
    "received": "received ids",
    "document_texts": "documents",
    **{f"document_index{part}": "documents" for part in ("", "_config", "_data", "_docsize", "_idx")},
    **dict.fromkeys(("message_spans", "message_projects", "message_words"), "search in messages"),
    **dict.fromkeys(("deleted_messages", "word_cursor"), "search in messages"),
    **{f"{index}{part}": "search in messages" for index in ("message_index", "word_index") for part in _PARTS},
    "session_texts": "search in sessions",
    **{f"session_index{part}": "search in sessions" for part in _PARTS},
}
_DERIVED = ("documents", "search in messages", "search in sessions")
_NO_DATA = {
    "histories",
    "sqlite_sequence",
    "delivery_counts",
    *(table for table, kind in _KINDS.items() if kind in _DERIVED),
}
"""Tables without data of their own."""
_LARGEST = (
    "SELECT 'queue ' || queue, count(*), sum(length(CAST(event AS BLOB))) FROM deliveries GROUP BY project, queue",
    "SELECT 'state of ' || triggers.trigger, count(*), sum(length(CAST(key AS BLOB)) + length(CAST(value AS BLOB))) "
    "FROM trigger_states JOIN triggers ON triggers.id = trigger_states.trigger GROUP BY triggers.id",
    "SELECT 'documents of ' || collection, count(*), sum(length(CAST(data AS BLOB))) FROM documents "
    "GROUP BY project, collection",
    "SELECT 'events named ' || name, count(*), sum(length(CAST(data AS BLOB))) FROM events GROUP BY name",
    "SELECT 'session ' || coalesce(session_id, '(deleted)'), count(*), sum(length(CAST(body AS BLOB))) "
    "FROM messages LEFT JOIN sessions USING (history) GROUP BY messages.history",
)
_SHOWN = 5


class SqliteAdministration:
    """A `StoreAdministration` for one file; it opens the file for each call."""

    def __init__(self, path: Path, busy_timeout: float, place: tuple[int, int] | None = None) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._place = place or place_of(path)

    def info(self) -> StoreInfo:
        """Return the room the file takes: each table with its indexes, and the largest single things."""
        size, free = self.size()
        with self._open() as db:
            uses = sorted(_uses(db), key=_bytes_of, reverse=True)
            found = [row for query in _LARGEST for row in db.execute(query)]
        largest = sorted((StoreUse(unplain(name), rows, size or 0) for name, rows, size in found), key=_bytes_of)
        replaced = (each for each in self.path.parent.glob(f"{self.path.name}{REPLACED}*Z") if each.is_file())
        return StoreInfo(
            self.path,
            size,
            free,
            tuple(uses),
            tuple(largest[: -_SHOWN - 1 : -1]),
            tuple(self.backups()),
            replaced=tuple(sorted(replaced, reverse=True)),
        )

    def size(self) -> tuple[int, int]:
        """Return the bytes of the file with the pages still in its log, and the free ones of them."""
        with self._open() as db:
            page = _number(db, "page_size")
            return _number(db, "page_count") * page, _number(db, "freelist_count") * page

    def probe(self) -> None:
        """Raise an error unless the file is in its place and readable; a file of up to 16 MB is checked completely."""
        if self._place is not None:
            require_place(self.path, self._place)  # of a store that was there from the start
        with self._open() as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if self.path.stat().st_size <= PROBED:
                check(db)

    def check(self, *, repair: bool = False) -> list[StoreFault]:
        """Read the whole file and return its faults; with `repair`, rebuild damaged indexes first."""
        try:
            with self._open() as db:
                if repair and (damaged_pages(db) or has_wrong_derived(db) or lacks_indexes(db)):
                    rebuild_indexes(db)
                return find_faults(db)
        except (StoreUnavailable, StoreConflict):
            raise
        except StoreError as error:
            return [StoreFault("file", str(error), SALVAGE)]

    def backup(self, path: Path | None = None, *, keep: int | None = None, label: str = "") -> Path:
        """Copy the store to a file that is not there yet; the copy is checked before it gets its name."""
        self._require()
        path = path or new_backup(self.path, label)
        back_up(self.path, path)
        for old in backups_of(self.path, label)[keep:] if keep is not None else ():
            old.unlink(missing_ok=True)
        return path

    def backups(self) -> list[Path]:
        """Return the backups in the folder beside the store, the newest first; those of a wrong clock, ahead, last."""
        return backups_of(self.path)

    def losses(self, backup: Path) -> RestoreLosses | None:
        """Return what a restore of `backup` would lose; None where it or the store is not there or unreadable."""
        from .losses import count_losses  # not at import: every process that uses a store imports this module

        return count_losses(self.path, backup, self._busy_timeout)

    def restore(self, path: Path | None = None) -> Path:
        """Put a checked copy of a backup in place of the store, which is kept as `NAME.replaced-TIME`.

        The new file replaces the old one in one step: killed at any moment, this leaves one of the two in place.
        Triggers and views of another hand are refused; other faults are logged, as it may be the only backup. Missing
        indexes are made, and those that may refuse new rows and no store has dropped.
        """
        source = path or next(iter(self.backups()), None)
        if source is None:
            raise BackupNotFound(self.path, f"has no backup in {self.path.parent / BACKUPS}. Name one")
        if not source.is_file():
            raise BackupNotFound(source, "is not a file. Name a backup; see: amplifier store info")
        kept = self._beside(f"{REPLACED}{stamp()}")
        with translate_errors(self.path), TemporaryDirectory(prefix=".new-store-", dir=self.path.parent) as folder:
            new = Path(folder) / "store"
            back_up(source, new)
            with closing(sqlite3.connect(new)) as db:
                if _number(db, "application_id") != APPLICATION_ID:  # an empty file would become an empty store
                    raise damage_error(source, "is not a backup of a store")
                checked_version(db, source)
            make_whole(new)  # of this version, or an error before anything is replaced
            with closing(raw_connection(new, 0)) as db:
                if strange := find_strange(db):
                    raise StoreDamaged(source, f"has {strange[0]}. Restore another backup")
                try:
                    restore_indexes(db)
                except sqlite3.IntegrityError as error:
                    raise StoreDamaged(source, f"has a row twice ({error}). Restore another backup") from None
                faults = find_faults(db)
            make_whole(new)  # with the indexes
            if self.path.exists():
                self._fold_log()
                kept.hardlink_to(self.path)
                self._set_log_aside(kept)
            new.replace(self.path)
            flush(self.path.parent)
        self._place = place_of(self.path)
        if faults:
            first = f"{faults[0].where}: {faults[0].message}"
            logger.warning("%s: has faults (%s). See all of them: amplifier store check", self.path, first)
        return kept

    def salvage(self, path: Path | None = None) -> Salvaged:
        """Write every readable row into a new file, by default `NAME.salvaged-TIME.db` beside the store."""
        self._require()
        target = path or self.path.with_name(f"{self.path.stem}.salvaged-{stamp()}.db")
        if os.path.lexists(target):
            raise StoreUnavailable(target, "is there already. Choose another path for the salvaged store")
        from .salvaging import salvage  # not at import: every process that runs background sessions imports this module

        with translate_errors(target), TemporaryDirectory(prefix=".salvage-", dir=target.parent) as folder:
            new = Path(folder) / "store"
            found = salvage(self.path, new, Path(folder))
            make_whole(new)
            new.replace(target)
            flush(target.parent)
        return Salvaged(target, {name: count for name, count in sorted(found.rows.items()) if count}, tuple(found.lost))

    def compact(self, *, wait: bool = False) -> Compacted:
        """Give free pages back for `SECONDS`; `wait` rewrites the whole file, once needed for files of older versions.

        A pause after each step, as long as it took, lets others write: see `purging`.
        """
        before, _ = self.size()
        with self._open() as db:
            if wait:
                clear_index(db)  # it is by rowids, which may change
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
                db.execute("VACUUM")
            elif _number(db, "auto_vacuum"):
                end = monotonic() + SECONDS
                while _number(db, "freelist_count"):
                    begun = monotonic()
                    db.executescript(f"PRAGMA incremental_vacuum({STEP})")  # `execute` frees one page
                    if (now := monotonic()) >= end:
                        break
                    sleep(min(now - begun, LONGEST_PAUSE))
            # a reader has the end of the log wait, and with it every writer: once is enough
            how = "PASSIVE" if _number(db, "freelist_count") else "TRUNCATE"
            db.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
        return Compacted(before, *self.size())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._require()
        with translate_errors(self.path):
            restrict(self.path)
            with closing(connect(self.path, self._busy_timeout)) as db:
                yield db

    def _require(self) -> None:
        if not self.path.exists():
            raise StoreUnavailable(self.path, "is not there. It is made when the first session is stored")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _fold_log(self) -> None:
        """Move the log into the file and end it. Raises `StoreUnavailable` if another connection is open."""
        try:
            with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = DELETE").fetchone()
        except sqlite3.Error as error:
            if is_locked(error):
                from .users import name_users  # not at import: every process that uses a store imports this module

                users = name_users(self.path)
                by = f" by {users}" if users else ""
                raise StoreUnavailable(
                    self.path, f"is in use{by}. Stop everything that uses it, and try again"
                ) from None
            # a damaged file: its log goes aside with it

    def _set_log_aside(self, kept: Path) -> None:
        """Move the log of a damaged file away: beside the new file, SQLite would write it into that."""
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._beside(suffix).rename(kept.with_name(kept.name + suffix))


def _bytes_of(use: StoreUse) -> int:
    return use.bytes


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _uses(db: sqlite3.Connection) -> Iterator[StoreUse]:
    """Yield the rows and bytes of each kind of data."""
    named = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL %'"
    tables = [name for (name,) in db.execute(named)]
    try:
        pages = "dbstat JOIN sqlite_master USING (name) WHERE aggregate = TRUE"
        sizes = dict(db.execute(f"SELECT tbl_name, sum(pgsize) FROM {pages} GROUP BY tbl_name").fetchall())
    except sqlite3.OperationalError:  # a SQLite without dbstat: the bytes of the values alone
        sizes = {}
        for table in tables:
            columns = [
                f"coalesce(length(CAST({each[1]} AS BLOB)), 0)" for each in db.execute(f"PRAGMA table_info({table})")
            ]
            sizes[table] = db.execute(f"SELECT coalesce(sum({' + '.join(columns)}), 0) FROM {table}").fetchone()[0]
    kinds: dict[str, tuple[int, int]] = {}
    for table in tables:
        kind = _KINDS.get(table, table.replace("_", " "))
        rows, size = kinds.get(kind, (0, 0))
        if table not in _NO_DATA:
            rows += db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        kinds[kind] = rows, size + sizes.get(table, 0)
    return (StoreUse(kind, rows, size) for kind, (rows, size) in kinds.items())
