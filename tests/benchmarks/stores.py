"""Measure the embedded store: one more turn, sessions at once, forks of long sessions, lists, ends of histories."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from contextlib import AsyncExitStack, closing
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, cast

from amplifier_context_simple import SimpleContextManager
from amplifier_core import ModuleCoordinator
from amplifier_core.documents import DocumentChange
from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.sessions.stored_history import stored_transcript
from amplifier_storage_sqlite import open_sqlite

from .environment import peers_python
from .measure import Row, awaited, called, in_turns
from .startup import NOTHING, PROGRAM, PYTHON, compiled
from .storing import (
    CALLS,
    LONG,
    LONGEST,
    ROUNDS,
    SHORT,
    TURN,
    closing_store,
    forking,
    in_folder,
    more_turns,
    next_turns,
    one_row,
    raw_in,
    session,
    store_in,
)
from .worker import SCRIPTS, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from amplifier_core.documents import DocumentSearch, DocumentStore
    from amplifier_core.storage import SessionStore
    from amplifier_storage_sqlite.store import SqliteStore

    from .measure import Sample
    from .worker import Worker

TOGETHER, MANY, KEPT = 16, 10_000, 2_000
"""Sessions that write at the same time; sessions of a list, and forks of one session; messages of that session."""
TAIL = 50
"""Messages that a context asks for."""
FORKS = 500
"""Forks of one round."""
ROOM = 10_000
"""Tokens of a request: about so many messages."""

TURN_AT_MOST = 1.2  # goal: times one transaction of the same bytes and durability
TURN_GROWTH_AT_MOST = 1.2  # goal: times one more turn of a short session
PEER_AT_MOST = {"one more turn": 0.5, "durable fork": 0.1}  # goals: times openai-agents
CARELESS_AT_MOST = 0.6  # goal: times openai-agents, both without a wait for the disk
FORK_AT_MOST = 2.0  # goal: times a one-row transaction of the same durability
DOCUMENT_AT_MOST = 2.0  # goal: times a one-row transaction of the same durability
DOCUMENTS_AT_MOST = 0.5  # goal: times a search by hand in the same rows
SEARCH_AT_MOST = 0.5  # goal: times a query by hand of an index of the same words
FORK_GROWTH_AT_MOST = 1.2  # goal: times the fork of a short session
TOGETHER_AT_MOST = 0.25  # goal: times a transaction of its own
LIST_AT_MOST = 3.0  # goal: times a reading by hand, without checksums, of the same rows
PAGE_AT_MOST = 1 / 200  # goal: times the whole list
TREE_AT_MOST = 35.0  # goal: times a Python that does nothing; 0.5 seconds where that takes 14 ms
TREE_MEMORY_AT_MOST = 10.5  # goal: times a Python that does nothing; 100 MB where that takes 9.5
FORK_SIZE_AT_MOST = 3.0  # goal: times the growth of a table of such records, with two indexes
TAIL_GROWTH_AT_MOST = 1.2
RESUME_GROWTH_AT_MOST = 12.0  # a page is read, and decoded

OPEN = {"state": ["open"]}
PEERS = ("langgraph", "openai-agents")
"""Those that keep sessions in SQLite."""


async def _turns(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        shorts = [f"short-{number}" for number in range(CALLS * (ROUNDS + 1))]
        for name in shorts:
            await session(store, name, SHORT)
        await session(store, "long", LONG)
        with closing(raw_in(folder)) as raw:
            samples = next_turns(store, iter(shorts)), more_turns(store, "long"), one_row(raw, 2100)
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"one more turn of 2 KB, {SHORT} messages / a transaction", short, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn of 2 KB, {LONG:,} messages / a transaction", long, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=TURN_GROWTH_AT_MOST)


async def _forks(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        for name, messages in (("short", SHORT), ("long", LONGEST)):
            await session(store, name, messages)
        with closing(raw_in(folder)) as raw:
            samples = forking(store, "short"), forking(store, "long"), one_row(raw, 200)
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"durable fork, {LONGEST:,} messages / a one-row transaction", long, limit, at_most_ratio=FORK_AT_MOST)
    yield Row(f"durable fork, {LONGEST:,} / {SHORT} messages", long, short, at_most_ratio=FORK_GROWTH_AT_MOST)


async def _documents(folder: Path) -> AsyncIterator[Row]:
    """Change a document with its event; then look for a hundredth of many."""
    async with store_in(folder) as opened:
        store = cast("DocumentStore", opened)
        data = {"title": "x" * 100, "text": "y" * 100}

        async def change_all() -> float:
            version = getattr(await store.document("/p", "issues", "changing"), "version", 0)
            start = perf_counter()
            for at in range(version, version + CALLS):
                change = DocumentChange("/p", "issues", "changing", data, at)
                await store.write_documents([change], emits=[SessionEvent("issue:changed", {"key": "changing"})])
            return (perf_counter() - start) / CALLS

        with closing(raw_in(folder)) as raw:
            write, limit = await in_turns(change_all, one_row(raw, 200), rounds=ROUNDS)
        many = [{**data, "state": "open" if number % 100 == 0 else "done"} for number in range(MANY)]
        await store.write_documents(
            [DocumentChange("/p", "many", f"{number:05}", each) for number, each in enumerate(many)]
        )
        notes = [
            DocumentChange("/p", "notes", f"{n:05}", {"text": f"the note {n} of key{n % 97} " * 5}, 0, ("text",))
            for n in range(MANY)
        ]
        await store.write_documents(notes)
        searching = cast("DocumentSearch", opened)
        with closing(sqlite3.connect(folder / "store.db")) as db:
            listing, search, listed, found = await in_turns(
                awaited(lambda: store.documents("/p", "many", where=OPEN), 1),
                awaited(lambda: searching.search_documents("/p", "notes", "the note of key42"), 1),
                called(lambda: _open_ones(db), 1),
                called(lambda: _matches(db), 1),
                rounds=ROUNDS,
            )
    yield Row("change a document, with an event / a one-row transaction", write, limit, at_most_ratio=DOCUMENT_AT_MOST)
    what = f"the open ones of {MANY:,} documents, a hundredth / a search by hand"
    yield Row(what, listing, listed, at_most_ratio=DOCUMENTS_AT_MOST)
    what = f"search four words, three common, in {MANY:,} documents / SQLite's own ranking"
    yield Row(what, search, found, at_most_ratio=SEARCH_AT_MOST)


def _open_ones(db: sqlite3.Connection) -> list[Any]:
    rows = db.execute("SELECT key, data FROM documents WHERE project = '/p' AND collection = 'many' ORDER BY key")
    return [(key, data) for key, text in rows if (data := json.loads(text))["state"] == "open"]


def _matches(db: sqlite3.Connection) -> list[Any]:
    query = """SELECT words FROM document_index WHERE document_index MATCH 'the OR note OR of OR key42'
        ORDER BY rank LIMIT 20"""
    return db.execute(query).fetchall()


async def _peers(folder: Path) -> AsyncIterator[Row]:
    """Ask the same of this store and of the peers, turn by turn; without the peers, of this store alone.

    Both peers write as durably: a commit waits for the disk (`synchronous=FULL`, the default of their SQLite).
    """
    python = peers_python()
    async with AsyncExitStack() as opened:
        store = await opened.enter_async_context(store_in(folder))
        await session(store, "long", LONG)
        scripts = [f"store_{name.replace('-', '_')}" for name in PEERS if python]
        workers = [await opened.enter_async_context(worker(python or Path(), script)) for script in scripts]
        for what, ours, question in (
            ("one more turn", more_turns(store, "long"), f"turn_{LONG}"),
            ("durable fork", forking(store, "long"), f"fork_{LONG}"),
        ):
            here, *there = await in_turns(ours, *(each.sample(question) for each in workers), rounds=7)
            for index, name in enumerate(PEERS):
                figure = there[index] if there else None
                allowed = PEER_AT_MOST[what] if name == "openai-agents" else None
                what_it_is = f"{what}, {LONG:,} messages / {name}"
                yield Row(what_it_is, here, figure, at_most_ratio=allowed, note="not installed")
        yield await _careless(folder, workers)


async def _careless(folder: Path, workers: Sequence[Worker]) -> Row:
    """Compare one more turn without the wait for the disk, which is the same for both: one `fdatasync`."""
    async with closing_store(open_sqlite({"path": folder / "careless.db"})) as opened:
        await session(opened, "long", LONG)
        store = cast("SqliteStore", opened)
        store._writer._db.execute("PRAGMA synchronous = OFF")
        here, *there = await in_turns(
            more_turns(store, "long"), *(each.sample(f"careless_{LONG}") for each in workers[-1:]), rounds=ROUNDS
        )
    what = f"  without the wait for the disk, {LONG:,} messages / openai-agents"
    limit = there[0] if there else None
    return Row(what, here, limit, at_most_ratio=CARELESS_AT_MOST, note="not installed")


async def _together(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        names = [f"s{number}" for number in range(TOGETHER)]
        for name in names:
            await session(store, name, SHORT)
        each = [more_turns(store, name) for name in names]

        async def together() -> float:
            return sum(await asyncio.gather(*(sample() for sample in each))) / TOGETHER / TOGETHER

        with closing(raw_in(folder)) as raw:
            turn, limit = await in_turns(together, one_row(raw, 2100), rounds=ROUNDS)
    yield Row(f"a turn, {TOGETHER} sessions at once / a transaction each", turn, limit, at_most_ratio=TOGETHER_AT_MOST)


async def _tails(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        await session(store, "short", TAIL)
        await session(store, "long", LONGEST)
        ends = [awaited(lambda: store.read("short", 0), CALLS)]
        ends.append(awaited(lambda: store.read("long", LONGEST - TAIL), CALLS))
        short, long = await in_turns(*ends, rounds=ROUNDS)
    what = f"the last {TAIL} messages, of {LONGEST:,} / of {TAIL}"
    yield Row(what, long, short, at_most_ratio=TAIL_GROWTH_AT_MOST)


async def _resumes(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        for name, messages in (("short", TAIL), ("long", LONGEST)):
            await store.create(SessionRecord(name))
            await store.append(name, TURN * (messages // 2), at=0)
        short, long = await in_turns(*(_resuming(store, name) for name in ("short", "long")), rounds=ROUNDS)
    what = f"resume and first request of {ROOM:,} tokens, {LONGEST:,} / {TAIL} messages"
    yield Row(what, long, short, at_most_ratio=RESUME_GROWTH_AT_MOST)


def _resuming(store: SessionStore, name: str) -> Sample:
    async def resume() -> Any:
        coordinator = ModuleCoordinator(session_id=name)
        transcript = stored_transcript(store, await store.get(name))
        coordinator.register_capability("session.transcript", transcript)
        return await SimpleContextManager(coordinator, {"max_tokens": ROOM}).get_messages_for_request()

    return awaited(resume, CALLS)


async def _lists(folder: Path) -> AsyncIterator[Row]:
    async with store_in(folder) as store:
        plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "tools": ["x" * 200]}
        records = (SessionRecord(f"s{number}", project=f"/p{number % 2}", config=plan) for number in range(MANY))
        await asyncio.gather(*(store.create(record) for record in records))
        with closing(sqlite3.connect(folder / "store.db")) as db:
            whole, page, by_hand = await in_turns(
                awaited(store.sessions, 1),
                awaited(lambda: store.sessions(limit=20), CALLS),
                called(lambda: _records(db), 1),
                rounds=7,
            )
    yield Row(f"list of {MANY:,} sessions / its rows read by hand", whole, by_hand, at_most_ratio=LIST_AT_MOST)
    yield Row(f"the newest 20 of {MANY:,} sessions / all of them", page, whole, at_most_ratio=PAGE_AT_MOST)


def _records(db: sqlite3.Connection) -> list[dict[str, Any]]:
    cursor = db.execute("SELECT * FROM sessions")
    names = [column[0] for column in cursor.description]
    records = [dict(zip(names, row, strict=True)) for row in cursor]
    return sorted(records, key=itemgetter("updated", "id"), reverse=True)


async def _tree(folder: Path) -> AsyncIterator[Row]:
    """Run the command on sessions woken by events: a tenth of them below the root, the others below those."""
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "tools": ["x" * 2000]}
    store = open_sqlite({"folder": folder})
    async with closing_store(store):
        await store.create(SessionRecord("root", project=str(folder), config=plan))

        async def wake(number: int) -> None:
            event = TriggerEvent(
                TriggerType.FILE_CHANGE, "watcher", file_path=f"/src/{number}.py", change_type="modified"
            )
            queue, parent = f"queue-{number % 100}", f"s{number - number % 10}"
            await store.enqueue(str(folder), queue, "trigger-file-watcher#0", event)
            delivery = await store.claim(str(folder), queue, owner="me", lease=60, session_id=f"s{number}")
            parent = f"s{number - number % 10}" if number % 10 else "root"
            record = SessionRecord(f"s{number}", parent, project=str(folder), status="completed", config=plan)
            await store.create(record)
            if delivery is not None:
                await store.commit(delivery)

        for start in range(0, MANY, 100):
            await asyncio.gather(*(wake(number) for number in range(start, start + 100)))
    took, nothing = await in_turns(_running(folder, PROGRAM, "session", "tree"), _running(folder, *NOTHING), rounds=9)
    yield Row(f"session tree of {MANY:,} sessions / python -c pass", took, nothing, at_most_ratio=TREE_AT_MOST)
    peaks = await in_turns(_peak(folder, "session", "tree"), _peak(folder), rounds=3)
    yield Row("  its memory / that of python -c pass", *peaks, at_most_ratio=TREE_MEMORY_AT_MOST, unit="kB")


def _running(folder: Path, *command: str) -> Sample:
    """Return a sample of a command in a process of its own; the data folder is `folder`."""
    environ = {**compiled(), "AMPLIFIER_HOME": str(folder)}
    run = partial(subprocess.run, command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=True)
    return called(run, 1)


def _peak(folder: Path, *command: str) -> Sample:
    """Return a sample of the kilobytes that a process takes at most."""
    peak = folder / "peak"
    run = _running(folder, PYTHON, str(SCRIPTS / "peak.py"), str(peak), *command)

    async def sample() -> float:
        await run()
        return int(peak.read_text(encoding="ascii"))

    return sample


async def _many_forks(folder: Path) -> AsyncIterator[Row]:
    """Fork a session of 10 MB again and again, beside as many transactions of one row; then compare their files."""
    numbers, plain = count(), count()
    async with store_in(folder) as store:
        await store.create(SessionRecord("source"))
        await store.append("source", [{"role": "user", "content": "x" * 5_000}] * KEPT, at=0)
        before = _size(folder / "store.db")

        async def fork() -> None:
            record = SessionRecord(f"fork-{next(numbers)}", parent_id="source", fork_of="source", fork_at=KEPT)
            await store.create(record)

        with closing(sqlite3.connect(folder / "records.db", isolation_level=None)) as db:
            db.executescript(_RECORDS)
            insert = partial(_insert, db, plain)
            forks, rows = await in_turns(awaited(fork, FORKS), called(insert, FORKS), rounds=9)
    size = _size(folder / "store.db") - before
    what = f"one of {FORKS * 10:,} forks of a session of 10 MB / an insert of such a record"
    yield Row(what, forks, rows, at_most_ratio=FORK_AT_MOST)
    what = f"growth of the file by {FORKS * 10:,} forks / by such records, with two indexes"
    yield Row(what, size, _size(folder / "records.db"), at_most_ratio=FORK_SIZE_AT_MOST, unit="B")


_RECORDS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE records (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, parent_id TEXT, fork_of TEXT, fork_at INTEGER,
    name TEXT, project TEXT, status TEXT, created INTEGER, updated INTEGER, config TEXT, metadata TEXT
);
CREATE INDEX records_by_parent ON records (parent_id);
"""


def _insert(db: sqlite3.Connection, numbers: Iterator[int]) -> None:
    now = time_ns() // 1000
    row = (f"fork-{next(numbers)}", "source", "source", KEPT, "", "", "idle", now, now, "{}", "{}")
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"INSERT INTO records VALUES (NULL, {', '.join('?' * len(row))})", row)
    db.execute("COMMIT")


def _size(path: Path) -> int:
    """Return the bytes of a database without its log."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])


_ALL = (_turns, _forks, _documents, _peers, _together, _tails, _resumes, _lists, _tree, _many_forks)
PARTS = tuple(map(in_folder, _ALL))
