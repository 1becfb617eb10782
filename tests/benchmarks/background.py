"""Background sessions: from an event to its turn, deliveries beside raw commits, pools, neighbours, and what is left.

`SOAK` is how many deliveries the last part makes (100,000 are measured against what is allowed).
"""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import hookimpl, load_plugins
from amplifier_core.events import PROVIDER_RESPONSE, TOOL_POST
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

from .measure import Figure, Row, in_turns
from .storing import one_row, raw_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from amplifier_core.storage import DurableStore

STARTED_AT_MOST = 12.0  # goal: times a commit by hand, from the stored event to its turn
LATE_AT_MOST = 12.0  # goal: the slowest of a hundred, times the slowest of a hundred commits by hand
DELIVERY_AT_MOST = 2.0  # goal: times a commit by hand
STEPS_AT_MOST = 4.0  # goal: times as many commits by hand
POOL_AT_MOST = 1 / 0.95  # goal: times the ideal
NEIGHBOUR_AT_MOST = 1 / 0.95  # goal: times as long as alone
MEMORY_AT_MOST = 1.1  # times the memory of the process after a fifth of them
FILE_AT_MOST = 2.0  # times the file after a tenth of them

POOL, EVENTS, TURN, ROUNDS = 16, 300, 0.5, 7
SOAK = int(os.environ.get("SOAK", "5000"))
PAST = 100_000

_LAST = 1_000_000
"""The priority of a handler that runs after all others."""

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
    awaited: tuple[str, str] = ("", "")
    left: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, activity: Activity) -> None:
        self.seen.append((activity.kind, activity.name, perf_counter()))
        if (activity.kind, activity.name) == self.awaited:
            self.left -= 1
            if self.left == 0:
                self.over.set()

    async def queue(self, name: str, runner: str | None, pool: int = POOL, **fields: Any) -> None:
        await self.manager.start(BackgroundSessionConfig(name=name, pool_size=pool, runner=runner, **fields))

    async def deliver(self, name: str, count: int, kind: str = "completed") -> float:
        """Fire so many events and return the seconds until the last of them is over."""
        self.seen.clear()
        self.awaited, self.left, self.over = (kind, name), count, asyncio.Event()
        begun = perf_counter()
        await asyncio.gather(*(self.manager.fire(name, {"n": n}) for n in range(count)))
        await self.over.wait()
        await asyncio.sleep(0.002)  # the workers find no further event, and rest
        return max(at for *each, at in self.seen if each == [kind, name]) - begun


def on_ground(part: Callable[[Ground], AsyncIterator[Row]]) -> Callable[[], AsyncIterator[Row]]:
    """Return a part that is measured on a ground of its own."""

    @wraps(part)
    async def run() -> AsyncIterator[Row]:
        async with open_ground() as ground:
            async for row in part(ground):
                yield row

    return run


@asynccontextmanager
async def open_ground(**sections: Any) -> AsyncIterator[Ground]:
    """Open a ground for a bundle with further `sections`."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        plugins = load_plugins(environ={})
        plugins.register(Offers(), "offers")
        store = open_inbox(plugins, path=Path(folder) / "store" / "amplifier.db")
        sections = {"bundle": {"name": "bench"}, "providers": PROVIDERS, **sections}
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
    """Deliver one event after the other, each beside a commit by hand."""
    await ground.queue("queue", None)
    started, late = [], []
    with closing(raw_in(ground.path.parent)) as raw:
        for _ in range(ROUNDS):
            taken, commits = [], []
            for _ in range(100):
                await ground.deliver("queue", 1)
                moments = {kind: at for kind, _, at in ground.seen}
                taken.append(moments["session"] - moments["accepted"])
                commits.append(await one_row(raw, 500, 1)())
            started.append((median(taken), median(commits)))
            late.append((max(taken), max(commits)))
    for what, pairs, allowed in (
        ("event stored, session made and begun / a commit", started, STARTED_AT_MOST),
        ("  the slowest of a hundred / the slowest commit", late, LATE_AT_MOST),
    ):
        ours, limit = map(Figure, zip(*pairs, strict=True))
        yield Row(what, ours, limit, at_most_ratio=allowed)


async def _deliveries(ground: Ground) -> AsyncIterator[Row]:
    await ground.queue("instant", "runner-instant")
    await ground.queue("session", None)
    with closing(raw_in(ground.path.parent)) as raw:

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
            *ours, limit = await in_turns(instant, session, apart, one_row(raw, 500, 300), rounds=ROUNDS)
    instantly, answered, alone = ours
    what = f"a delivery to an instant session, pool of {POOL} / a commit"
    yield Row(what, instantly, limit, at_most_ratio=DELIVERY_AT_MOST)
    yield Row(f"a delivery to a session with one answer, pool of {POOL} / a commit", answered, limit)
    yield Row("each session in a loop of its own, as under `up` / in one loop", alone, answered)


async def _pool(ground: Ground) -> AsyncIterator[Row]:
    await ground.queue("queue", "runner-waiting")
    turns = 5
    taken = Figure([await ground.deliver("queue", POOL * turns) for _ in range(3)])
    what = f"{POOL * turns} turns of {TURN * 1000:.0f} ms, pool of {POOL} / the ideal"
    yield Row(what, taken, turns * TURN, at_most_ratio=POOL_AT_MOST)


async def _neighbour(ground: Ground) -> AsyncIterator[Row]:
    retry = {"delay": 0.05, "max_delay": 0.1}
    await ground.queue("sound", "runner-waiting", pool=4)
    await ground.queue("poisoned", "runner-poison", pool=4, max_attempts=100, retry=retry)

    before = Figure([await ground.deliver("sound", 16) for _ in range(3)])
    await ground.deliver("poisoned", 20, kind="retried")
    beside = Figure([await ground.deliver("sound", 16) for _ in range(3)])
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
    yield Row(f"memory {what} / {4 * share:,}", sizes[-1], sizes[3], unit="B", at_most_ratio=MEMORY_AT_MOST)
    yield Row(
        f"file {what} / {4 * share:,}", files[-1], files[3], unit="B", at_most_ratio=FILE_AT_MOST if judged else None
    )


STEPS = ("accept", "claim", "prepare", "model", "tools", "commit")
"""Where the time of a delivery goes; a table in the README of the store names them."""
COMMITS = 8
"""Commits of such a delivery."""
CALLING = {
    "providers": [
        {
            "module": "provider-playbook",
            "config": {
                "rules": [{"when": {"tool": "glob"}, "say": "Done."}],
                "otherwise": {"call": {"tool": "glob", "input": {"pattern": "*.md"}}},
            },
        }
    ],
    "tools": [{"module": "tool-filesystem"}],
}


async def _steps() -> AsyncIterator[Row]:
    """Deliver events, one after the other, to a session that calls one tool, beside commits by hand.

    Each moment of a delivery belongs to one step, so they add up to the whole. What a step stores is in it: `accept`,
    `claim` and `prepare` one commit each, `model` one before each of two requests, `tools` one before the call, and
    `commit` two, the rest of the history and the end of the delivery.
    """
    async with open_ground(**CALLING) as ground:
        await ground.queue("queue", None, pool=1)
        watch = StepWatch(ground)
        with closing(raw_in(ground.path.parent)) as raw:
            whole, commit = await in_turns(watch.deliver, one_row(raw, 500, 20 * COMMITS), rounds=11)
        limit = Figure(each * COMMITS for each in commit.rounds)
    figures = {step: Figure(each[step] for each in watch.taken[1:]) for step in STEPS}
    yield Row(f"a delivery with one tool call / {COMMITS} commits by hand", whole, limit, at_most_ratio=STEPS_AT_MOST)
    for step, seconds in figures.items():
        yield Row(f"  a delivery: {step} / the whole", seconds, whole)


class StepWatch:
    """Notes when each step of the deliveries of a ground ends."""

    def __init__(self, ground: Ground) -> None:
        self.taken: list[dict[str, float]] = []
        self._ground = ground
        self._last = 0.0
        self._sums = dict.fromkeys(STEPS, 0.0)
        self._claim, ground.store.claim = ground.store.claim, self._note_claim  # type: ignore[method-assign]
        ground.manager._engine.observers.append(self._note_activity)

    async def deliver(self, deliveries: int = 20) -> float:
        """Return the seconds that a delivery takes, and add those of its steps to `taken`."""
        self._sums = dict.fromkeys(STEPS, 0.0)
        for _ in range(deliveries):
            self._last = perf_counter()
            await self._ground.deliver("queue", 1)
        self.taken.append({step: seconds / deliveries for step, seconds in self._sums.items()})
        return sum(self.taken[-1].values())

    def _note(self, step: str) -> None:
        now = perf_counter()
        self._sums[step] += now - self._last
        self._last = now

    async def _note_claim(self, *place: Any, **how: Any) -> Any:
        claimed = await self._claim(*place, **how)
        if claimed is not None:
            self._note("claim")
        return claimed

    def _note_activity(self, activity: Activity) -> None:
        if activity.kind == "session":
            self._note("prepare")
            hooks = activity.facts["session"].coordinator.hooks
            for event, step in ((PROVIDER_RESPONSE, "model"), (TOOL_POST, "tools")):
                hooks.register(event, self._note_hook(step), _LAST, "bench")
        elif activity.kind in ("accepted", "completed"):
            self._note({"accepted": "accept", "completed": "commit"}[activity.kind])

    def _note_hook(self, step: str) -> Any:
        async def note(event: str, data: dict[str, Any]) -> None:
            self._note(step)

        return note


async def _forget(ground: Ground) -> None:
    await ground.store.purge(before=datetime.now(UTC) + timedelta(seconds=1))
    for record in await ground.store.sessions():
        if record.status == "completed":
            await ground.store.delete(record.session_id)


def _resident() -> float:
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS")]
    return float(line.split()[1]) * 1024


PARTS = (*map(on_ground, (_started, _deliveries, _pool, _neighbour, _soak)), _steps)
