"""Background sessions: from an event to its turn, deliveries beside raw commits, pools, neighbours, and what is left.

`SOAK` is how many deliveries the last part makes (100,000 are measured against what is allowed).
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import hookimpl, load_plugins
from amplifier_foundation import (
    Activity,
    BackgroundSessionConfig,
    BackgroundSessionManager,
    Bundle,
    EventRouter,
    PreparedBundle,
    open_inbox,
)
from amplifier_foundation.spawning.own_loops import SessionLoops

from .measure import Row, called, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.storage import DurableStore

STARTED_AT_MOST = 0.05  # goal: seconds from the stored event to its turn, at the 99th percentile
DELIVERY_AT_MOST = 2.0  # goal: times a commit by hand
POOL_AT_MOST = 1 / 0.95  # goal: times the ideal
NEIGHBOUR_AT_MOST = 1 / 0.95  # goal: times as long as alone
MEMORY_AT_MOST = 10 * 1024 * 1024  # goal: bytes, after 100,000 deliveries
FILE_AT_MOST = 2.0  # times the file after a tenth of them

POOL, EVENTS, TURN, ROUNDS = 16, 1_000, 0.5, 5
SOAK = int(os.environ.get("SOAK", "5000"))
PAST = 100_000

PROVIDERS = [{"module": "provider-playbook", "config": {"otherwise": {"say": "Done."}}}]


class Instant:
    """Answers at once, and makes no session for it."""

    async def run(self, request: Any, make_session: Any) -> str:
        return "Done."


class Waiting:
    """Answers after the time that a model would take."""

    async def run(self, request: Any, make_session: Any) -> str:
        await asyncio.sleep(TURN)
        return "Done."


class Poison:
    """Fails, always."""

    async def run(self, request: Any, make_session: Any) -> str:
        raise ValueError("poison")


class Offers:
    """The plugin with these runners."""

    @hookimpl
    def amplifier_register_runner(self, register: Any) -> None:
        for runner in (Instant, Waiting, Poison):
            register(f"runner-{runner.__name__.lower()}", runner)


@dataclass(slots=True)
class Ground:
    """A manager on a store of its own."""

    manager: BackgroundSessionManager
    store: DurableStore
    path: Path
    seen: list[tuple[str, str, float]]

    def see(self, activity: Activity) -> None:
        self.seen.append((activity.kind, activity.name, perf_counter()))

    async def queue(self, name: str, runner: str | None, pool: int = POOL, **fields: Any) -> None:
        await self.manager.start(BackgroundSessionConfig(name=name, pool_size=pool, runner=runner, **fields))

    async def deliver(self, name: str, count: int, kind: str = "completed") -> float:
        """Fire so many events and return the seconds until the last of them is over."""
        self.seen.clear()
        begun = perf_counter()
        await asyncio.gather(*(self.manager.fire(name, {"n": n}) for n in range(count)))
        over = 0
        while over < count:
            await asyncio.sleep(0.002)
            over = sum(each[:2] == (kind, name) for each in self.seen)
        return max(at for *each, at in self.seen if each == [kind, name]) - begun


async def rows() -> AsyncIterator[Row]:
    """Measure each on a ground of its own."""
    for part in (_started, _deliveries, _pool, _neighbour, _soak):
        async with open_ground() as ground:
            async for row in part(ground):
                yield row


@asynccontextmanager
async def open_ground() -> AsyncIterator[Ground]:
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        plugins = load_plugins(environ={})
        plugins.register(Offers(), "offers")
        store = open_inbox(plugins, path=Path(folder) / "store" / "amplifier.db")
        sections = {"bundle": {"name": "bench"}, "providers": PROVIDERS}
        bundle = PreparedBundle.of(Bundle.from_dict(sections, Path(folder)))
        parent = await bundle.create_session(session_id="parent", session_cwd=folder)
        try:
            async with BackgroundSessionManager(
                parent, EventRouter(store), store, plugins=plugins, bundle=bundle
            ) as manager:
                ground = Ground(manager, store, Path(folder) / "store" / "amplifier.db", [])
                manager._engine.observers.append(ground.see)
                yield ground
        finally:
            await parent.cleanup()
            await store.close()


async def _started(ground: Ground) -> AsyncIterator[Row]:
    await ground.queue("queue", None)
    taken = []
    for _ in range(EVENTS // 2):
        await ground.deliver("queue", 1)
        moments = {kind: at for kind, _, at in ground.seen}
        taken.append(moments["session"] - moments["accepted"])
    taken.sort()
    yield Row("event stored, session made and begun: p50", taken[len(taken) // 2])
    yield timed("event stored, session made and begun: p99", taken[len(taken) * 99 // 100], at_most=STARTED_AT_MOST)


async def _deliveries(ground: Ground) -> AsyncIterator[Row]:
    await ground.queue("instant", "runner-instant")
    await ground.queue("session", None)
    with closing(_raw(ground.path.with_name("raw.db"))) as raw:

        def commit() -> None:
            raw.execute("INSERT INTO rows (body) VALUES (?)", ("x" * 500,))

        async def instant() -> float:
            return await ground.deliver("instant", EVENTS) / EVENTS

        async def session() -> float:
            return await ground.deliver("session", EVENTS) / EVENTS

        async def apart() -> float:
            ground.manager._engine.loops = loops
            try:
                return await session()
            finally:
                ground.manager._engine.loops = None

        with SessionLoops() as loops:
            *ours, limit = await in_turns(instant, session, apart, called(commit, 300), rounds=ROUNDS)
    instantly, answered, alone = ours
    what = f"a delivery to an instant session, pool of {POOL} / a commit"
    yield Row(what, instantly, limit, at_most_ratio=DELIVERY_AT_MOST)
    yield Row(f"a delivery to a session with one answer, pool of {POOL} / a commit", answered, limit)
    yield Row("each session in a loop of its own, as under `up` / in one loop", alone, answered)


async def _pool(ground: Ground) -> AsyncIterator[Row]:
    await ground.queue("queue", "runner-waiting")
    turns = 5
    taken = await ground.deliver("queue", POOL * turns)
    what = f"{POOL * turns} turns of {TURN * 1000:.0f} ms, pool of {POOL} / the ideal"
    yield Row(what, taken, turns * TURN, at_most_ratio=POOL_AT_MOST)


async def _neighbour(ground: Ground) -> AsyncIterator[Row]:
    retry = {"delay": 0.05, "max_delay": 0.1}
    await ground.queue("sound", "runner-waiting", pool=4)
    await ground.queue("poisoned", "runner-poison", pool=4, max_attempts=100, retry=retry)

    async def alone() -> float:
        return await ground.deliver("sound", 16)

    before, _ = await alone(), await ground.deliver("poisoned", 20, kind="retried")
    beside = await alone()
    yield Row("16 turns beside a poisoned queue / alone", beside, before, at_most_ratio=NEIGHBOUR_AT_MOST)


async def _soak(ground: Ground) -> AsyncIterator[Row]:
    """Deliver many, and forget the old ones now and then as `amplifier up` does."""
    await ground.queue("queue", None)
    share = max(500, SOAK // 20)
    sizes, files = [], []
    for _ in range(20):
        await ground.deliver("queue", share)
        ground.seen.clear()
        await _forget(ground)
        gc.collect()
        sizes.append(_resident())
        files.append(float(ground.path.stat().st_size))
    what = f"after {20 * share:,} deliveries"
    judged = share * 20 >= PAST
    yield Row(f"memory {what} beside {4 * share:,}", sizes[-1] - sizes[3], unit="B", at_most=MEMORY_AT_MOST)
    yield Row(
        f"file {what} / {4 * share:,}", files[-1], files[3], unit="B", at_most_ratio=FILE_AT_MOST if judged else None
    )


async def _forget(ground: Ground) -> None:
    await ground.store.purge(before=datetime.now(UTC) + timedelta(seconds=1))
    for record in await ground.store.sessions():
        if record.status == "completed":
            await ground.store.delete(record.session_id)


def _resident() -> float:
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS")]
    return float(line.split()[1]) * 1024


def _raw(path: Path) -> sqlite3.Connection:
    """Open a database as durable as the store."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return db
