"""Salvage a damaged store: write every readable row into a new file, and say in sentences what is lost.

The rows come from the pages themselves (`carving`), so neither a bad index nor a bad tree of pages hides one. A row
belongs to the table with its shape; messages, histories, records and documents must have their checksums.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import InvalidSessionId, StoreDamaged
from amplifier_core.ids import validate_session_id
from amplifier_core.storage import SessionRecord

from .carving import Pages, Row
from .checking import incomplete_sessions
from .counting import count_deliveries
from .faults import DamageError
from .ordering import restore_order
from .rows import SESSIONS
from .schema import MIGRATIONS, upgrade
from .searching import rebuild_index
from .sessions import COLUMNS, seal
from .values import checksum

if TYPE_CHECKING:
    from pathlib import Path

    from .values import Column

LOST_RECORD = "its record was damaged; its messages were salvaged"
_CHECKED = ("sessions", "histories", "messages", "documents")
_UNCHECKED = {"sessions": ("id", "recent", "listed")}


class Shape(NamedTuple):
    """Describe the columns of a table; a row from before a column was added has fewer."""

    table: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    required: tuple[bool, ...]
    key: int | None
    """The column holding the rowid."""

    def fits(self, row: Row) -> bool:
        """Return whether a row may be of this table."""
        return all(
            value is None if at == self.key else self._may_hold(at, value) for at, value in enumerate(row.values)
        )

    def _may_hold(self, at: int, value: Column | float) -> bool:
        if value is None:
            return not self.required[at]
        return isinstance(value, int) if self.types[at] == "INTEGER" else isinstance(value, (str, bytes))

    def columns(self, row: Row) -> dict[str, Column | float]:
        """Return the columns of a row by name."""
        values = dict(zip(self.names, row.values, strict=False))
        if self.key is not None:
            values[self.names[self.key]] = row.rowid
        return values


@dataclass
class Salvage:
    """Fill a new store; `rows` counts by table, `lost` says what is missing."""

    db: sqlite3.Connection
    rows: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    damaged: list[dict[str, Column | float]] = field(default_factory=list)
    """Records with a wrong checksum."""

    def fill(self, pages: Pages, version: int) -> None:
        """Insert every readable row, in one transaction."""
        self.db.execute("BEGIN")
        upgrade(self.db, 0, version)
        shapes = _shapes(self.db)
        refused: Counter[str] = Counter()
        last, is_readable = 0, False
        for row in pages.rows():
            is_readable = True
            if len(row.values) == 2 and row.values[0] == "events" and isinstance(row.values[1], int):
                last = max(last, row.values[1])
            shape = next((each for each in shapes[row.rowid is None, len(row.values)] if each.fits(row)), None)
            if shape is not None and not self._insert(shape, row):
                refused[shape.table] += 1
        if not self.rows.total() and (not is_readable or pages.bad or pages.missing):  # an empty store has its schema
            raise DamageError("nothing in it is readable")
        upgrade(self.db, version)
        self._restore_sequence(last)
        rebuild_index(self.db)
        count_deliveries(self.db)
        self._link_histories()
        self._rebuild_records()
        restore_order(self.db)
        self.lost += [f"{count} rows of {table} are damaged" for table, count in sorted(refused.items())]
        self.lost += [f"page {page} of the file is unreadable" for page in sorted(pages.bad)[:20]]
        self.lost += [f"{len(pages.bad) - 20} more pages are unreadable"] if len(pages.bad) > 20 else []
        self.lost += [f"the last {pages.missing} pages of the file are missing"] if pages.missing else []
        self.lost += [f"{fault.where}: {fault.message}" for fault in incomplete_sessions(self.db)]
        self.db.execute("COMMIT")

    def _insert(self, shape: Shape, row: Row) -> bool:
        values = shape.columns(row)
        if shape.table in _CHECKED and "digest" in values:
            *checked, digest = [value for name, value in values.items() if name not in _UNCHECKED.get(shape.table, ())]
            if digest != checksum(*checked):  # type: ignore[arg-type]  # a number with a fraction is no column of ours
                if shape.table == "sessions":
                    self.damaged.append(values)
                return False
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        inserted = self.db.execute(f"INSERT OR IGNORE INTO {shape.table} ({names}) VALUES ({marks})", values).rowcount
        self.rows[shape.table] += inserted
        return bool(inserted)

    def _restore_sequence(self, last: int) -> None:
        """Let no sequence of an event be used again, although the last event may be purged or lost."""
        newest = self.db.execute("SELECT coalesce(max(sequence), 0) FROM events").fetchone()[0]
        self.db.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        self.db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (max(last, newest),))

    def _link_histories(self) -> None:
        """Put rows in place of lost ones in `histories`: the session of the history says what it was forked from."""
        known = "SELECT id FROM histories"
        wanted = f"""SELECT history FROM messages WHERE history NOT IN ({known})
            UNION SELECT history FROM sessions WHERE history NOT IN ({known})"""
        for (history,) in self.db.execute(wanted).fetchall():
            source = self.db.execute(
                "SELECT source.history, fork.fork_at FROM sessions AS fork "
                "JOIN sessions AS source ON source.session_id = fork.fork_of "
                "WHERE fork.history = ? AND source.history < fork.history",
                (history,),
            ).fetchone()
            first = self.db.execute("SELECT min(position) FROM messages WHERE history = ?", (history,)).fetchone()[0]
            row = (history, *(source or (None, first or 0)))
            self.db.execute(
                "INSERT INTO histories (id, source, shared, digest) VALUES (?, ?, ?, ?)", (*row, checksum(*row))
            )

    def _rebuild_records(self) -> None:
        """Make a record for each history whose session has lost its own."""
        named = {values["history"]: values["session_id"] for values in self.damaged}
        alone = """SELECT id FROM histories WHERE id NOT IN (
            SELECT history FROM sessions UNION SELECT history FROM cuts
            UNION SELECT source FROM histories WHERE source IS NOT NULL)"""
        end = """SELECT coalesce(max(position) + 1, shared) FROM histories
            LEFT JOIN messages ON history = id WHERE id = ?"""
        empty = 0
        for history in [*named, *(history for (history,) in self.db.execute(alone) if history not in named)]:
            session_id, found = f"salvaged-{history}", self.db.execute(end, (history,)).fetchone()
            count = found[0] if found else 0
            if not count:
                empty += 1
                continue
            with suppress(InvalidSessionId):
                session_id = validate_session_id(named.get(history))
            record = SessionRecord(session_id, status="interrupted", error=LOST_RECORD)
            row = seal({**SESSIONS.row(record), "message_count": count, "history": history})
            marks = ", ".join(f":{name}" for name in row)
            if self.db.execute(f"INSERT OR IGNORE INTO sessions ({COLUMNS}) VALUES ({marks})", row).rowcount:
                self.lost.append(f"the record of session {session_id}: its name, parent and configuration")
        self.lost += [f"{empty} sessions without messages"] if empty else []


def salvage(source: Path, target: Path, folder: Path) -> Salvage:
    """Fill a new file `target` from a damaged one; `folder` takes copies meanwhile.

    Raises `StoreDamaged` when nothing is readable.
    """
    if not source.stat().st_size:
        raise _unreadable(source)
    copy = folder / "damaged"
    shutil.copyfile(source, copy)
    lost = _apply_log(source, copy)
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(descriptor)
    with (
        copy.open("rb") as file,
        mmap(file.fileno(), 0, access=ACCESS_READ) as data,
        closing(sqlite3.connect(target, isolation_level=None)) as db,
    ):
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        found = Salvage(db, lost=lost)
        version = int.from_bytes(data[60:64], "big")
        try:
            found.fill(Pages(data), version if 4 <= version <= len(MIGRATIONS) else len(MIGRATIONS))
        except DamageError:
            raise _unreadable(source) from None
    return found


def _unreadable(source: Path) -> StoreDamaged:
    return StoreDamaged(source, "nothing in it is readable. Go back to a backup: amplifier store restore")


def _apply_log(source: Path, copy: Path) -> list[str]:
    """Write the log beside `source` into the copy, as SQLite does; return what is lost if it cannot."""
    log = source.with_name(f"{source.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return []
    shutil.copyfile(log, copy.with_name(f"{copy.name}-wal"))
    with suppress(sqlite3.Error), closing(sqlite3.connect(copy, isolation_level=None)) as db:
        if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
            return []
    return [f"the last writes: the log of {log.stat().st_size:,} bytes does not fit the file"]


def _shapes(db: sqlite3.Connection) -> defaultdict[tuple[bool, int], list[Shape]]:
    """Return the shapes of the tables by (rows lie in an index, number of columns)."""
    found: defaultdict[tuple[bool, int], list[Shape]] = defaultdict(list)
    tables = """SELECT name, sql FROM sqlite_master
        WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'document_index%'
            AND name NOT LIKE 'message_index%' AND name NOT LIKE 'session_index%' AND name NOT LIKE 'word_index%'
            AND name NOT IN ('message_spans', 'message_projects', 'message_words', 'deleted_messages', 'word_cursor',
                'session_texts', 'delivery_counts')"""
    for table, sql in db.execute(tables).fetchall():
        columns = db.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [at for at, column in enumerate(columns) if column[5]]
        shape = Shape(
            table,
            tuple(column[1] for column in columns),
            tuple(column[2] for column in columns),
            tuple(bool(column[3] or column[5]) for column in columns),
            keys[0] if len(keys) == 1 and columns[keys[0]][2] == "INTEGER" else None,
        )
        least = 1 + max(at for at, column in enumerate(columns) if column[3] and column[4] is None)
        for size in range(least, len(columns) + 1):  # rows from before a column was added are shorter
            found["WITHOUT ROWID" in sql, size].append(shape)
    return found
