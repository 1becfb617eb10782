"""Measure the embedded store: one more turn, sessions at once, forks of long sessions, lists, ends of histories."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
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
from .measure import Row, awaited, called, in_turns, timed
from .storing import (
    CALLS,
    LONG,
    LONGEST,
    ROUNDS,
    SHORT,
    TURN,
    closing_store,
    forking,
    more_turns,
    next_turns,
    session,
)
from .worker import SCRIPTS, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.documents import DocumentSearch, DocumentStore
    from amplifier_core.storage import SessionStore

    from .measure import Sample

TOGETHER, MANY, KEPT = 16, 10_000, 2_000
"""Sessions that write at the same time; sessions of a list, and forks of one session; messages of that session."""
TAIL = 50
"""Messages that a context asks for."""
ROOM = 10_000
"""Tokens of a request: about so many messages."""

TURN_AT_MOST = 2.0  # goal: times one transaction of the same durability
TURN_GROWTH_AT_MOST = 1.2  # goal: times one more turn of a short session
FORK_AT_MOST = 3.0  # goal: times a one-row transaction of the same durability
DOCUMENT_AT_MOST = 2.0  # goal: times a one-row transaction of the same durability
DOCUMENTS_AT_MOST = 0.2  # goal: seconds
SEARCH_AT_MOST = 0.02  # goal: seconds
FORK_GROWTH_AT_MOST = 1.5  # goal: times the fork of a short session
TOGETHER_AT_MOST = 0.4  # goal: times a transaction of its own: 60 µs where that takes 150 µs
LIST_AT_MOST = 0.2  # goal: seconds
TREE_AT_MOST = 0.5  # goal: seconds, with the start of the command
TREE_MEMORY_AT_MOST = 100  # goal: megabytes
FORKS_AT_MOST = 60.0  # goal: seconds
FORK_SIZE_AT_MOST = 2048  # goal: bytes of the file
TAIL_GROWTH_AT_MOST = 1.5
RESUME_GROWTH_AT_MOST = 12.0  # a page is read, and decoded

OPEN = {"state": ["open"]}
PEERS = ("langgraph", "openai-agents")
"""Those that keep sessions in SQLite."""


async def rows() -> AsyncIterator[Row]:
    """Measure each in a store of its own."""
    for part in (_turns, _forks, _documents, _peers, _together, _tails, _resumes, _lists, _tree, _many_forks):
        with TemporaryDirectory(prefix="amplifier-bench-") as folder:
            async for row in part(Path(folder)):
                yield row


async def _turns(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        shorts = [f"short-{number}" for number in range(CALLS * (ROUNDS + 1))]
        for name in shorts:
            await session(store, name, SHORT)
        await session(store, "long", LONG)
        with closing(_raw(folder)) as raw:
            samples = next_turns(store, iter(shorts)), more_turns(store, "long"), _by_hand(raw, 2100)
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"one more turn of 2 KB, {SHORT} messages / a transaction", short, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn of 2 KB, {LONG:,} messages / a transaction", long, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=TURN_GROWTH_AT_MOST)


async def _forks(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        for name, messages in (("short", SHORT), ("long", LONGEST)):
            await session(store, name, messages)
        with closing(_raw(folder)) as raw:
            samples = forking(store, "short"), forking(store, "long"), _by_hand(raw, 200)
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"durable fork, {LONGEST:,} messages / a one-row transaction", long, limit, at_most_ratio=FORK_AT_MOST)
    yield Row(f"durable fork, {LONGEST:,} / {SHORT} messages", long, short, at_most_ratio=FORK_GROWTH_AT_MOST)


async def _documents(folder: Path) -> AsyncIterator[Row]:
    """Change a document with its event; then look for a hundredth of many."""
    async with _store(folder) as opened:
        store = cast("DocumentStore", opened)
        data = {"title": "x" * 100, "text": "y" * 100}

        async def change_all() -> float:
            version = getattr(await store.document("/p", "issues", "changing"), "version", 0)
            start = perf_counter()
            for at in range(version, version + CALLS):
                change = DocumentChange("/p", "issues", "changing", data, at)
                await store.write_documents([change], emits=[SessionEvent("issue:changed", {"key": "changing"})])
            return (perf_counter() - start) / CALLS

        with closing(_raw(folder)) as raw:
            write, limit = await in_turns(change_all, _by_hand(raw, 200), rounds=ROUNDS)
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
        listing, search = await in_turns(
            awaited(lambda: store.documents("/p", "many", where=OPEN), 1),
            awaited(lambda: searching.search_documents("/p", "notes", "the note of key42"), 1),
            rounds=ROUNDS,
        )
    yield Row("change a document, with an event / a one-row transaction", write, limit, at_most_ratio=DOCUMENT_AT_MOST)
    yield timed(f"the open ones of {MANY:,} documents, a hundredth", listing, DOCUMENTS_AT_MOST)
    yield timed(f"search four words, three common, in {MANY:,} documents", search, SEARCH_AT_MOST)


async def _peers(folder: Path) -> AsyncIterator[Row]:
    """Ask the same of this store and of the peers, turn by turn; without the peers, of this store alone."""
    python = peers_python()
    async with AsyncExitStack() as opened:
        store = await opened.enter_async_context(_store(folder))
        await session(store, "long", LONG)
        scripts = [f"store_{name.replace('-', '_')}" for name in PEERS if python]
        workers = [await opened.enter_async_context(worker(python or Path(), script)) for script in scripts]
        for what, ours, question in (
            ("one more turn", more_turns(store, "long"), f"turn_{LONG}"),
            ("durable fork", forking(store, "long"), f"fork_{LONG}"),
        ):
            here, *there = await in_turns(ours, *(each.sample(question) for each in workers), rounds=3)
            for index, name in enumerate(PEERS):
                figure = there[index] if there else None
                yield Row(f"{what}, {LONG:,} messages / {name}", here, figure, note="not installed")


async def _together(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        names = [f"s{number}" for number in range(TOGETHER)]
        for name in names:
            await session(store, name, SHORT)
        each = [more_turns(store, name) for name in names]

        async def together() -> float:
            return sum(await asyncio.gather(*(sample() for sample in each))) / TOGETHER / TOGETHER

        with closing(_raw(folder)) as raw:
            turn, limit = await in_turns(together, _by_hand(raw, 2100), rounds=ROUNDS)
    yield Row(f"a turn, {TOGETHER} sessions at once / a transaction each", turn, limit, at_most_ratio=TOGETHER_AT_MOST)


async def _tails(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        await session(store, "short", TAIL)
        await session(store, "long", LONGEST)
        ends = [awaited(lambda: store.read("short", 0), CALLS)]
        ends.append(awaited(lambda: store.read("long", LONGEST - TAIL), CALLS))
        short, long = await in_turns(*ends, rounds=ROUNDS)
    what = f"the last {TAIL} messages, of {LONGEST:,} / of {TAIL}"
    yield Row(what, long, short, at_most_ratio=TAIL_GROWTH_AT_MOST)


async def _resumes(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
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
    async with _store(folder) as store:
        plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "tools": ["x" * 200]}
        records = (SessionRecord(f"s{number}", project=f"/p{number % 2}", config=plan) for number in range(MANY))
        await asyncio.gather(*(store.create(record) for record in records))
        whole, page = await in_turns(awaited(store.sessions, 1), awaited(lambda: store.sessions(limit=20), 1), rounds=7)
    yield timed(f"list of {MANY:,} sessions", whole, at_most=LIST_AT_MOST)
    yield Row(f"the newest 20 of {MANY:,} sessions", page)


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
    seconds, memory = min(_run_tree(folder) for _ in range(5))
    yield timed(f"session tree of {MANY:,} sessions", seconds, at_most=TREE_AT_MOST)
    yield Row("  its memory", memory, at_most=TREE_MEMORY_AT_MOST, unit="MB")


def _run_tree(folder: Path) -> tuple[float, float]:
    """Return the seconds and megabytes of one command."""
    peak = folder / "peak"
    start = perf_counter()
    subprocess.run(
        [sys.executable, SCRIPTS / "peak.py", peak, "session", "tree"],
        cwd=folder,
        env={**os.environ, "AMPLIFIER_HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return perf_counter() - start, int(peak.read_text()) / 1000


async def _many_forks(folder: Path) -> AsyncIterator[Row]:
    async with _store(folder) as store:
        await store.create(SessionRecord("source"))
        await store.append("source", [{"role": "user", "content": "x" * 5_000}] * KEPT, at=0)
        before = _size(folder)
        start = perf_counter()
        for number in range(MANY):
            await store.create(SessionRecord(f"fork-{number}", parent_id="source", fork_of="source", fork_at=KEPT))
        seconds = perf_counter() - start
    yield timed(f"{MANY:,} forks of a session of 10 MB", seconds, at_most=FORKS_AT_MOST)
    yield Row("the file grows for each by", (_size(folder) - before) / MANY, at_most=FORK_SIZE_AT_MOST, unit="B")


# sessions and samples


def _store(folder: Path) -> AbstractAsyncContextManager[SessionStore]:
    return closing_store(open_sqlite({"path": folder / "store.db"}))


def _by_hand(db: sqlite3.Connection, size: int) -> Sample:
    def insert() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (body) VALUES (?)", ("x" * size,))
        db.execute("COMMIT")

    return called(insert, CALLS)


def _raw(folder: Path) -> sqlite3.Connection:
    """Open a database beside the store with the same durability: each commit waits for the disk."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return db


def _size(folder: Path) -> int:
    """Return the bytes of the store without its log."""
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return int(db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])
