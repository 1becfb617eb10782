"""Make stores of a given size, and keep them between runs.

The product writes the smallest one. A larger one has copies of these rows, each with ids, times and checksums of its
own, in the order in which the product would have written them.
"""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.sessions.store_views import search_of
from amplifier_storage_sqlite import counting, message_words, open_sqlite, ordering, schema, session_texts, trigrams
from amplifier_storage_sqlite.sessions import seal
from amplifier_storage_sqlite.values import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from amplifier_core.storage import DurableStore

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "bench-stores"
DEFINED = (
    *(schema.__file__, counting.__file__, ordering.__file__),
    *(session_texts.__file__, message_words.__file__, trigrams.__file__),
)
FILLED = ROOT / "plugins" / "amplifier-dashboard" / "tests" / "filled.py"
SIZES = ((100, 1_000), (1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000))
"""Sessions and deliveries."""
MIDDLE = "talk-middle"
"""The session in the middle of a chain: an event woke it, and its own event woke another one."""
RARE, COMMON = "aardvark", "nothing"
"""A word in one message, and a word in every session."""
_BUNDLE = """---
bundle: {name: bundle-0}
background_sessions:
"""
_BACKGROUND_SESSION = """  - name: session-%d
    instruction: Review the file.
    triggers: [{module: trigger-file-watcher, config: {patterns: ["*.py"]}}]
"""
_DAYS = 14 * 24 * 3600 * 1_000_000


class KeptStore(NamedTuple):
    """Name the folders of a store."""

    home: Path
    """`AMPLIFIER_HOME`."""
    project: Path
    """A project with a quarter of all sessions, and a bundle."""

    @property
    def path(self) -> Path:
        """The file."""
        return self.home / "amplifier.db"


async def keep_store(sessions: int, deliveries: int) -> KeptStore:
    """Return the kept store of this size; make it first unless there is a sound one."""
    key = _key()
    folder = KEPT / key / f"{sessions}-{deliveries}"
    store = KeptStore(folder / "home", folder / "project-0")
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        for other in [each for each in KEPT.iterdir() if each.is_dir() and each.name != key]:
            shutil.rmtree(other, ignore_errors=True)
        if not _is_sound(store.path, sessions, deliveries):
            shutil.rmtree(folder, ignore_errors=True)
            await _make(folder, store, sessions, deliveries)
    return store


def load_filler() -> Any:
    """Return the module with the stores that the page is tested with."""
    if found := sys.modules.get("amplifier_dashboard_filled"):
        return found
    spec = spec_from_file_location("amplifier_dashboard_filled", FILLED)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _key() -> str:
    """Return the version of the schema, and a digest of what fills the stores."""
    text = b"".join(Path(path).read_bytes() for path in (__file__, FILLED, *DEFINED))
    return f"{len(schema.MIGRATIONS)}-{sha256(text).hexdigest()[:12]}"


def _is_sound(path: Path, sessions: int, deliveries: int) -> bool:
    """Return whether a complete store has its rows: what is not complete has another name."""
    if not path.is_file():
        return False
    with closing(sqlite3.connect(path)) as db:
        try:
            [(found,)] = db.execute("SELECT count(*) FROM sessions WHERE event_id IS NOT NULL")
            [(last,)] = db.execute("SELECT count(*) FROM deliveries")
        except sqlite3.Error:
            return False
    return (found, last) == (sessions + 3, deliveries + 3)


async def _make(folder: Path, store: KeptStore, sessions: int, deliveries: int) -> None:
    store.home.mkdir(parents=True)
    store.project.mkdir()
    declared = "".join(_BACKGROUND_SESSION % number for number in (0, 20))
    (store.project / "bundle.md").write_text(f"{_BUNDLE}{declared}---\nAnswer in one line.\n", encoding="utf-8")
    path = store.home / "unfinished.db"
    written = open_sqlite({"path": path})
    smallest = SIZES[0]
    await load_filler().fill_large(written, sessions=smallest[0], deliveries=smallest[1], folder=str(folder))
    await written.close()
    if (sessions, deliveries) != smallest:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            _multiply(db, sessions, deliveries)
    written = open_sqlite({"path": path})
    await _chain(written, str(store.project))
    while await search_of(written).index_messages(10_000):
        pass
    await written.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        while session_texts.index_texts(db):
            pass
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA journal_mode = DELETE").fetchall()
    path.rename(store.path)


async def _chain(store: DurableStore, project: str) -> None:
    """Store three sessions, each woken by the one before, the first by a changed file."""
    filled = load_filler()
    now = filled.datetime.now(filled.UTC)
    event = filled.file_change("src/first.py", now)
    for session_id in ("talk-first", MIDDLE, "talk-last"):
        delivery = await filled.deliver(store, project, "bundle-0/talk", "trigger-session-event", event, now)
        claimed = await filled.begin(store, delivery, session_id, now, turn_count=1)
        answer = f"An {RARE}." if session_id == MIDDLE else "An answer."
        await filled.finish(store, claimed, "Talk.", answer, now, filled.spent(now))
        [logged] = await store.events(source_session_id=session_id)
        event = TriggerEvent(
            TriggerType.SESSION_EVENT,
            "trigger-session-event",
            now,
            dict(logged.data),
            source_session_id=session_id,
            event_name=logged.name,
            cause=logged.event_id,
        )


def _multiply(db: sqlite3.Connection, sessions: int, deliveries: int) -> None:
    """Put so many rows in place of those that the product wrote."""
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF", "cache_size = -400000"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN")
    derived = db.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql > ''")
    statements = []
    for kind, name, sql in derived.fetchall():
        db.execute(f"DROP {kind} {name}")
        statements.append(sql)
    _Copies(db, sessions, deliveries).write()
    ordering.restore_order(db)
    for sql in statements:
        db.execute(sql)
    counting.count_deliveries(db)
    db.execute("COMMIT")


class _Copies:
    """Writes the copies of a store's rows."""

    def __init__(self, db: sqlite3.Connection, sessions: int, deliveries: int) -> None:
        self._db = db
        self._first, self._count = deliveries - sessions, deliveries
        self._deliveries = self._take("deliveries", "id")
        self._sessions = {each["session_id"]: each for each in self._take("sessions", "id")}
        self._roots = [each for each in self._sessions.values() if each["event_id"] is None]
        self._messages: dict[int, list[dict[str, Any]]] = {}
        for each in self._take("messages", "rowid"):
            self._messages.setdefault(each["history"], []).append(each)
        self._events = {each["source_session_id"]: each for each in self._take("events", "sequence")}
        self._take("histories", "id")
        self._end = max(each["created"] for each in self._deliveries)

    def write(self) -> None:
        """Insert all rows."""
        self._insert("deliveries", self._copied_deliveries())
        self._insert("histories", self._copied_histories())
        self._insert("sessions", self._copied_sessions())
        self._insert("messages", self._copied_messages())
        self._insert("events", self._copied_events())

    def _take(self, table: str, order: str) -> list[dict[str, Any]]:
        rows = self._db.execute(f"SELECT * FROM {table} ORDER BY {order}")
        names = [column[0] for column in rows.description]
        found = [dict(zip(names, row, strict=True)) for row in rows]
        self._db.execute(f"DELETE FROM {table}")
        return found

    def _insert(self, table: str, rows: Iterator[Mapping[str, Any]]) -> None:
        first = next(rows)
        query = f"INSERT INTO {table} ({', '.join(first)}) VALUES ({', '.join(':' + name for name in first)})"
        self._db.execute(query, first)
        self._db.executemany(query, rows)

    def _copied_histories(self) -> Iterator[Mapping[str, Any]]:
        for number in range(1, len(self._roots) + self._count - self._first + 1):
            yield {"id": number, "source": None, "shared": 0, "digest": checksum(number, None, 0)}

    def _moment(self, number: int) -> int:
        return self._end - _DAYS * (self._count - number) // self._count

    def _copied_deliveries(self) -> Iterator[Mapping[str, Any]]:
        for number in range(self._count):
            original, at = self._deliveries[number % len(self._deliveries)], self._moment(number)
            yield {
                **original,
                "id": number + 1,
                "delivery_id": _new_id("delivery", number),
                "event_id": _new_id("event", number),
                "event": original["event"].replace(original["event_id"], _new_id("event", number)),
                "session_id": f"session-{number:012}",
                **dict.fromkeys(("available_at", "created", "updated"), at),
            }

    def _copied_sessions(self) -> Iterator[Mapping[str, Any]]:
        for history, root in enumerate(self._roots, 1):
            yield seal({**root, "id": history, "history": history})
        for history, number in enumerate(range(self._first, self._count), len(self._roots) + 1):
            at = self._moment(number)
            about = {"session_id": f"session-{number:012}", "event_id": _new_id("event", number), "history": history}
            yield seal({**self._session(number), **about, "id": history, "created": at, "updated": at})

    def _copied_messages(self) -> Iterator[Mapping[str, Any]]:
        for history, number in enumerate(range(self._first, self._count), len(self._roots) + 1):
            original = self._session(number)
            for each in self._messages[original["history"]]:
                body = each["body"].replace(original["session_id"], f"session-{number:012}")
                digest = checksum(history, each["position"], body)
                yield {"history": history, "position": each["position"], "body": body, "digest": digest}

    def _copied_events(self) -> Iterator[Mapping[str, Any]]:
        for sequence, number in enumerate(range(self._first, self._count), 1):
            original = self._events.get(self._session(number)["session_id"])
            if original is not None:  # a dead letter has emitted nothing
                yield {
                    **original,
                    "sequence": sequence,
                    "event_id": _new_id("log", number),
                    "source_session_id": f"session-{number:012}",
                    "cause": _new_id("event", number),
                    "timestamp": self._moment(number),
                }

    def _session(self, number: int) -> dict[str, Any]:
        return self._sessions[self._deliveries[len(self._deliveries) - 100 + number % 100]["session_id"]]


def _new_id(kind: str, number: int) -> str:
    return sha256(f"{kind} {number}".encode()).hexdigest()[:32]
