"""What background sessions cost that a bundle declares and nothing wakes: their start, their idleness, their memory.

`start_<sessions>` stops those of before, and starts so many: a fourth of them each has a file watcher, a timer, a
trigger for events of other sessions, and one for the command line. `bare` runs none: a loop that asks SQLite every
second what has come due, and another one where the rows end.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import tracemalloc
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from answering import answer

from amplifier_core import load_plugins
from amplifier_foundation import BackgroundSessionManager, EventRouter, load_bundle, open_inbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SIZES = (1, 10, 100, 1_000)
IDLE, COMMITS = 2.0, 100
"""Seconds of idleness; transactions of one measurement."""
TRIGGERS = (
    "{type: file-watcher, config: {path: folder%d}}",
    "{type: timer, config: {interval: 1h}}",
    "{type: session-event, config: {event_names: ['never:%d']}}",
    "{type: manual}",
)
HEAD = """---
bundle: {name: bench}
providers: [{module: provider-playbook, config: {otherwise: {say: Done.}}}]
background_sessions:
"""

life = AsyncExitStack()
beside: list[asyncio.Task[None]] = []


def write_bundle(root: Path, sessions: int) -> Path:
    lines = []
    for number in range(sessions):
        trigger = TRIGGERS[number % len(TRIGGERS)]
        lines.append(f"- {{name: s{number}, triggers: [{trigger % number if '%d' in trigger else trigger}]}}\n")
        (root / f"folder{number}").mkdir()
    (root / "bundle.md").write_text(f"{HEAD}{''.join(lines)}---\nAnswer.\n")
    return root / "bundle.md"


async def start(sessions: int, *, traced: bool = False) -> float:
    """Return the seconds until all are armed; with `traced` the bytes of one."""
    await life.aclose()
    root = Path(tempfile.mkdtemp(prefix="amplifier-bench-")).resolve()
    life.callback(shutil.rmtree, root)
    bundle = await load_bundle(str(write_bundle(root, sessions)))
    plugins, prepared = load_plugins(environ={}), await bundle.prepare()
    store = open_inbox(plugins, path=root / "store" / "amplifier.db")
    life.push_async_callback(store.close)
    parent = await prepared.create_session(session_id="parent", session_cwd=str(root))
    life.push_async_callback(parent.cleanup)
    manager = BackgroundSessionManager(parent, EventRouter(store), store, plugins=plugins, bundle=prepared)
    await life.enter_async_context(manager)
    if traced:
        tracemalloc.start()
        life.callback(tracemalloc.stop)
    begun = perf_counter()
    await manager.start_all(bundle.background_sessions)
    taken = perf_counter() - begun
    if any(row["status"] != "running" for row in manager.get_status().values()):
        raise RuntimeError("not all run")
    return tracemalloc.get_traced_memory()[0] / sessions if traced else taken


async def memory(sessions: int) -> float:
    await start(1)
    return await start(sessions, traced=True)


def open_database() -> sqlite3.Connection:
    """Make a database as durable as the store."""
    root = Path(tempfile.mkdtemp(prefix="amplifier-bench-"))
    life.callback(shutil.rmtree, root)
    db = sqlite3.connect(root / "rows.db", isolation_level=None)
    life.callback(db.close)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, due INTEGER)")
    return db


async def bare() -> float:
    db = open_database()

    async def look(question: str) -> None:
        while True:
            await asyncio.sleep(1)
            db.execute(question).fetchone()

    for question in ("SELECT min(id) FROM rows WHERE due < 7", "SELECT max(id) FROM rows"):
        beside.append(asyncio.create_task(look(question)))
    return 0.0


async def commit() -> float:
    """Return the seconds of a transaction with one row."""
    db = open_database()
    begun = perf_counter()
    for number in range(COMMITS):
        db.execute("INSERT INTO rows (due) VALUES (?)", (number,))
    return (perf_counter() - begun) / COMMITS


async def idle() -> float:
    """Return the processor time of a second in which nothing happens."""
    begun = process_time()
    await asyncio.sleep(IDLE)
    return (process_time() - begun) / IDLE


async def end() -> float:
    for task in beside:
        task.cancel()
    await life.aclose()
    return 0.0


questions: dict[str, Callable[[], Awaitable[float]]] = {f"start_{each}": partial(start, each) for each in SIZES}
questions |= {f"memory_{each}": partial(memory, each) for each in SIZES}
answer(**questions, bare=bare, commit=commit, idle=idle, end=end)
