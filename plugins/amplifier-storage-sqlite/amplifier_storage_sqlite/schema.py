"""Define the tables, and migrate a file of an older version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreConflict

from .counting import COUNTING
from .faults import damage_error
from .ordering import ORDERING
from .values import checksum, dumps, field_of, loads, plain, without_field

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x414D504C  # "AMPL", for file(1) and for telling another program's database from ours

_FIRST_RECORD = (
    "session_id, parent_id, fork_of, fork_at, name, bundle, bundle_source, bundle_digest, project, status, event_id, "
    "created, updated, message_count, turn_count, error, config, metadata"
)

_FIRST = (
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL UNIQUE,
        parent_id TEXT,
        fork_of TEXT REFERENCES sessions (session_id),
        fork_at INTEGER,
        name TEXT NOT NULL,
        bundle TEXT NOT NULL,
        bundle_source TEXT NOT NULL,
        bundle_digest TEXT NOT NULL,
        project TEXT NOT NULL,
        status TEXT NOT NULL,
        event_id TEXT,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        message_count INTEGER NOT NULL,
        turn_count INTEGER NOT NULL,
        error TEXT,
        config TEXT NOT NULL,
        metadata TEXT NOT NULL
    )""",
    "CREATE INDEX sessions_by_time ON sessions (updated)",
    "CREATE INDEX sessions_by_project ON sessions (project, updated)",
    "CREATE INDEX sessions_by_source ON sessions (fork_of) WHERE fork_of IS NOT NULL",
    """CREATE TABLE messages (
        session INTEGER NOT NULL REFERENCES sessions (id),
        position INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (session, position)
    )""",
    """CREATE TABLE events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        data TEXT NOT NULL,
        source_session_id TEXT,
        timestamp INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        cause TEXT,
        depth INTEGER NOT NULL
    )""",
    """CREATE TABLE deliveries (
        id INTEGER PRIMARY KEY,
        delivery_id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL,
        lane TEXT NOT NULL,
        trigger TEXT NOT NULL,
        event TEXT NOT NULL,
        dedupe_key TEXT,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        lease_until INTEGER NOT NULL DEFAULT 0,
        session_id TEXT,
        available_at INTEGER NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        reason TEXT
    )""",
    """CREATE UNIQUE INDEX deliveries_once ON deliveries (project, lane, dedupe_key)
        WHERE dedupe_key IS NOT NULL""",
    """CREATE INDEX deliveries_due ON deliveries (project, lane, available_at)
        WHERE state IN ('pending', 'claimed')""",
    """CREATE TABLE trigger_states (
        project TEXT NOT NULL,
        trigger TEXT NOT NULL,
        state TEXT NOT NULL,
        PRIMARY KEY (project, trigger)
    ) WITHOUT ROWID""",
)

# Histories of their own: they outlive deleted sessions. Checksums of records, links and messages.
_SECOND = (
    "ALTER TABLE sessions RENAME TO first_sessions",
    "ALTER TABLE messages RENAME TO first_messages",
    """CREATE TABLE histories (
        id INTEGER PRIMARY KEY,
        source INTEGER REFERENCES histories (id),
        shared INTEGER NOT NULL,
        digest INTEGER NOT NULL
    )""",
    """INSERT INTO histories
        SELECT fork.id, source.id, coalesce(fork.fork_at, 0),
            checksum(fork.id, source.id, coalesce(fork.fork_at, 0))
        FROM first_sessions AS fork LEFT JOIN first_sessions AS source ON source.session_id = fork.fork_of
        ORDER BY fork.id""",
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL UNIQUE,
        parent_id TEXT,
        fork_of TEXT,
        fork_at INTEGER,
        name TEXT NOT NULL,
        bundle TEXT NOT NULL,
        bundle_source TEXT NOT NULL,
        bundle_digest TEXT NOT NULL,
        project TEXT NOT NULL,
        status TEXT NOT NULL,
        event_id TEXT,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        message_count INTEGER NOT NULL,
        turn_count INTEGER NOT NULL,
        error TEXT,
        config TEXT NOT NULL,
        metadata TEXT NOT NULL,
        history INTEGER NOT NULL UNIQUE REFERENCES histories (id),
        digest INTEGER NOT NULL
    )""",
    f"""INSERT INTO sessions SELECT id, {_FIRST_RECORD}, id, checksum({_FIRST_RECORD}, id)
        FROM first_sessions ORDER BY id""",
    """CREATE TABLE messages (
        history INTEGER NOT NULL REFERENCES histories (id),
        position INTEGER NOT NULL,
        body TEXT NOT NULL,
        digest INTEGER NOT NULL,
        PRIMARY KEY (history, position)
    )""",
    """INSERT INTO messages SELECT session, position, body, checksum(session, position, body)
        FROM first_messages ORDER BY session, position""",
    "DROP TABLE first_messages",
    "DROP TABLE first_sessions",
    "CREATE INDEX sessions_by_time ON sessions (updated)",
    "CREATE INDEX sessions_by_project ON sessions (project, updated)",
    "CREATE INDEX histories_by_source ON histories (source, shared) WHERE source IS NOT NULL",
    """CREATE TABLE cuts (
        session_id TEXT NOT NULL,
        history INTEGER NOT NULL REFERENCES histories (id),
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        cut INTEGER NOT NULL
    )""",
    "CREATE INDEX cuts_by_session ON cuts (session_id)",
    "CREATE INDEX cuts_by_history ON cuts (history)",
)

# Find the children of a session, and the finished deliveries, without a look at the others.
_THIRD = (
    "CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL",
    "CREATE INDEX deliveries_over ON deliveries (updated) WHERE state IN ('done', 'refused')",
)

# How a delivery waits in its queue, columns to find it by, and counts of finished deliveries without a look at each.
_FINISHED = "state NOT IN ('pending', 'claimed')"  # a longer list is looked up: 5x the cost
_FOURTH = (
    f"CREATE INDEX deliveries_by_trigger ON deliveries (project, lane, trigger, state, created) WHERE {_FINISHED}",
    "ALTER TABLE deliveries ADD COLUMN key TEXT",
    "ALTER TABLE deliveries ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE deliveries ADD COLUMN waits INTEGER NOT NULL DEFAULT 0",  # for an earlier one of its key
    "ALTER TABLE deliveries ADD COLUMN settle_key TEXT",
    "ALTER TABLE deliveries ADD COLUMN settling_since INTEGER",
    "ALTER TABLE deliveries ADD COLUMN event_id TEXT",
    "ALTER TABLE deliveries ADD COLUMN cause TEXT",
    "UPDATE deliveries SET event_id = field_of(event, 'event_id'), cause = field_of(event, 'cause')",
    "DROP INDEX deliveries_due",
    """CREATE INDEX deliveries_due ON deliveries (project, lane, waits, priority DESC, available_at)
        WHERE state IN ('pending', 'claimed')""",
    """CREATE INDEX deliveries_by_key ON deliveries (project, lane, key)
        WHERE key IS NOT NULL AND state IN ('pending', 'claimed')""",
    "CREATE INDEX deliveries_held ON deliveries (project, lane, key) WHERE waits = 2",
    "CREATE INDEX deliveries_settling ON deliveries (project, lane, settle_key) WHERE settle_key IS NOT NULL",
    "DROP INDEX deliveries_over",
    f"CREATE INDEX deliveries_over ON deliveries (state, updated) WHERE {_FINISHED}",
    "CREATE INDEX deliveries_by_event ON deliveries (event_id)",
    "CREATE INDEX deliveries_by_session ON deliveries (session_id) WHERE session_id IS NOT NULL",
    "CREATE INDEX deliveries_by_cause ON deliveries (cause) WHERE cause IS NOT NULL",
)

# Find one event, and the events of one session, without a look at the whole log.
_FIFTH = (
    "CREATE INDEX events_by_id ON events (event_id)",
    "CREATE INDEX events_by_session ON events (source_session_id) WHERE source_session_id IS NOT NULL",
)

# One word for one thing: the deliveries of one background session are its queue.
_SIXTH = ("ALTER TABLE deliveries RENAME COLUMN lane TO queue",)

# The state of a trigger is stored once, in `trigger_states`: a delivery does not repeat it.
_SEVENTH = ("""UPDATE deliveries SET event = without_field(event, 'state') WHERE instr(event, '"state":') > 0""",)


def _split_states(db: sqlite3.Connection) -> None:
    """Give each key of a trigger's state its row. A damaged state stays damaged: reading it fails."""
    query = "SELECT id, state FROM first_trigger_states JOIN triggers USING (project, trigger)"
    for trigger, state in db.execute(query).fetchall():
        try:
            rows = [(trigger, plain(key), dumps(value)) for key, value in loads(state).items()]
        except (ValueError, AttributeError):
            rows = [(trigger, "", state)]
        db.executemany("INSERT INTO trigger_states VALUES (?, ?, ?)", rows)


# A trigger's state, a row for each key, so that one event changes some rows.
_EIGHTH = (
    "CREATE TABLE triggers (id INTEGER PRIMARY KEY, project TEXT NOT NULL, trigger TEXT NOT NULL)",
    "CREATE UNIQUE INDEX triggers_by_name ON triggers (project, trigger)",
    "INSERT INTO triggers (project, trigger) SELECT project, trigger FROM trigger_states",
    "ALTER TABLE trigger_states RENAME TO first_trigger_states",
    """CREATE TABLE trigger_states (
        trigger INTEGER NOT NULL REFERENCES triggers (id),
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (trigger, key)
    ) WITHOUT ROWID""",
    _split_states,
    "DROP TABLE first_trigger_states",
)

# Find what a session spawned without a look at its forks.
_NINTH = (
    """CREATE INDEX sessions_spawned ON sessions (parent_id, updated)
        WHERE parent_id IS NOT NULL AND fork_of IS NULL AND event_id IS NULL""",
)

# The project of an event: triggers hear their own.
_TENTH = ("ALTER TABLE events ADD COLUMN project TEXT",)

# Small records of tools and plugins. A key is the UTF-8 of its text: keys sort by their code points.
_ELEVENTH = (
    """CREATE TABLE documents (
        project TEXT NOT NULL,
        collection TEXT NOT NULL,
        key BLOB NOT NULL,
        data TEXT NOT NULL,
        version INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        digest INTEGER NOT NULL,
        PRIMARY KEY (project, collection, key)
    )""",
)


def make_search_index(db: sqlite3.Connection) -> None:
    """Make the index of `document_texts` where there is none; a SQLite without FTS5 makes none."""
    with suppress(sqlite3.OperationalError):
        db.execute("""CREATE VIRTUAL TABLE IF NOT EXISTS document_index USING fts5(
            words, content = 'document_texts', content_rowid = 'id', tokenize = 'ascii', prefix = '3 4')""")


# The words of the documents that a search finds, and their index.
_TWELFTH = (
    """CREATE TABLE document_texts (
        id INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        collection TEXT NOT NULL,
        key BLOB NOT NULL,
        members TEXT NOT NULL,
        words TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX document_texts_by_key ON document_texts (project, collection, key)",
    make_search_index,
)

# The ids of the events of other sites, so that each is logged once.
_THIRTEENTH = (
    """CREATE TABLE received (
        id INTEGER PRIMARY KEY,
        origin TEXT NOT NULL,
        event_id TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        at INTEGER NOT NULL
    )""",
    "CREATE UNIQUE INDEX received_once ON received (origin, event_id)",
    "CREATE INDEX received_by_sequence ON received (sequence)",
)

# Pages of sessions and deliveries without a look at other rows.
_SHOWN = "id, status, name, session_id, bundle"  # filters of a page read the index alone
_FOURTEENTH = (
    "DROP INDEX sessions_by_time",
    f"CREATE INDEX sessions_by_time ON sessions (updated, {_SHOWN})",
    "DROP INDEX sessions_by_project",
    f"CREATE INDEX sessions_by_project ON sessions (project, updated, {_SHOWN})",
    """CREATE INDEX deliveries_open ON deliveries (project, queue, state, created)
        WHERE state IN ('pending', 'claimed')""",
)


def make_message_index(db: sqlite3.Connection) -> None:
    """Make the index of `messages` where there is none; a SQLite without FTS5 makes none."""
    with suppress(sqlite3.OperationalError):
        db.execute("""CREATE VIRTUAL TABLE IF NOT EXISTS message_index USING fts5(
            words, content = '', columnsize = 0, tokenize = 'ascii')""")


# The words of messages, the ranges of rowids of `messages` that have them, and the project of each history in it.
_FIFTEENTH = (
    "CREATE TABLE message_spans (low INTEGER PRIMARY KEY, high INTEGER NOT NULL)",
    "CREATE TABLE message_projects (history INTEGER PRIMARY KEY, project TEXT NOT NULL)",
    make_message_index,
)

# A look at a key reads no long value beside it: in a table without rowids, it reads the whole row.
_STATES_BY_KEY = (
    "ALTER TABLE trigger_states RENAME TO eighth_trigger_states",
    """CREATE TABLE trigger_states (
        trigger INTEGER NOT NULL REFERENCES triggers (id),
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (trigger, key)
    )""",
    "INSERT INTO trigger_states SELECT trigger, key, value FROM eighth_trigger_states",
    "DROP TABLE eighth_trigger_states",
)


def _make_part_indexes(db: sqlite3.Connection) -> None:
    """Make the indexes for parts of words and names; searches fill them."""
    from .message_words import MESSAGE_WORDS  # not at import: most processes open a file of this version
    from .session_texts import SESSION_TEXTS

    for step in (*SESSION_TEXTS, *MESSAGE_WORDS):
        db.execute(step) if isinstance(step, str) else step(db)


# Names with letters beyond ASCII are folded anew, in which `ü` is `ü` however it is written.
_FOLDING = ("UPDATE session_texts SET marked = 1 WHERE length(text) < length(CAST(text AS BLOB))",)
Step = str | Callable[["sqlite3.Connection"], None]
MIGRATIONS: tuple[tuple[Step, ...], ...] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH, _EIGHTH, _NINTH, _TENTH, _ELEVENTH, _TWELFTH),
    *(_THIRTEENTH, _FOURTEENTH, _FIFTEENTH, COUNTING, (*ORDERING, *_STATES_BY_KEY), (_make_part_indexes,), _FOLDING),
)
"""The n-th brings a file of version n to version n + 1. Released ones are never changed."""


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version, in one transaction.

    Raises `StoreConflict` for a file of a newer version, `StoreDamaged` for another program's.
    """
    if checked_version(db, path) == len(MIGRATIONS):
        return
    db.execute("PRAGMA foreign_keys = OFF")  # a migration replaces a table with references to it
    db.execute("BEGIN IMMEDIATE")
    try:
        upgrade(db, checked_version(db, path))  # read again: another process may have done it meanwhile
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if _number(db, "PRAGMA freelist_count") > _number(db, "PRAGMA page_count") // 2:
        with suppress(sqlite3.OperationalError):  # without room for a copy the file stays large
            db.execute("VACUUM")


def upgrade(db: sqlite3.Connection, start: int = 0, stop: int | None = None) -> None:
    """Bring tables of version `start` to version `stop` (None: this one), within the caller's transaction."""
    db.create_function("checksum", -1, checksum, deterministic=True)
    db.create_function("field_of", 2, field_of, deterministic=True)
    db.create_function("without_field", 2, without_field, deterministic=True)
    for step in (step for statements in MIGRATIONS[start:stop] for step in statements):
        db.execute(step) if isinstance(step, str) else step(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS[:stop])}")


def checked_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of a file. Raises `StoreConflict` for a newer one, `StoreDamaged` for no store."""
    version, owner = _number(db, "PRAGMA user_version"), _number(db, "PRAGMA application_id")
    if owner != APPLICATION_ID and _number(db, "SELECT count(*) FROM sqlite_master"):
        raise damage_error(path, "is a database of another program")
    if version > len(MIGRATIONS):
        raise StoreConflict(
            path,
            f"was written by a newer version (schema {version}, this one knows {len(MIGRATIONS)}). "
            f"Update with: pip install -U amplifier amplifier-storage-sqlite",
        )
    return version


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
