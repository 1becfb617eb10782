"""A week of simulated time with faults of a seed: the same ledger at its end, each time.

`WEEK_EVENTS` is how many events there are (10,000 are a full week), `SEED` chooses other faults.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import StoreUnavailable, TriggerContext, TriggerEvent, TriggerType, hookimpl, load_plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_foundation import (
    BackgroundSessionConfig,
    BackgroundSessionManager,
    Bundle,
    EventRouter,
    PreparedBundle,
)
from amplifier_foundation.background import watch

EVENTS = int(os.environ.get("WEEK_EVENTS", "120"))
SEED = int(os.environ.get("SEED", "20261121"))
WEEK = 7 * 24 * 3600.0
LANES = 4


class Faulty:
    """A store that fails at calls which the seed chooses, before or after it did what was asked."""

    def __init__(self, store: DurableStore, chance: random.Random) -> None:
        self._store, self._chance = store, chance
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("enqueue", "claim", "create", "update", "commit", "nack", "dead_letter", "emit"):
            return method

        async def call(*arguments: Any, **given: Any) -> Any:
            if self._chance.random() < 0.01:
                self.failures += 1
                raise StoreUnavailable("/store", "the disk is full")
            result = await method(*arguments, **given)
            if self._chance.random() < 0.002:
                self.failures += 1
                raise StoreUnavailable("/store", "the disk was full, or not")
            return result

        return call


class Scheduled:
    """A trigger that fires at the moments of a plan, and goes on behind the last that was stored; it fails at times."""

    plan: list[list[float]]
    chance: random.Random

    def bind(self, context: TriggerContext) -> None:
        self._context = context
        self._stopped = False

    def configure(self, config: Mapping[str, Any]) -> None:
        self._moments = self.plan[config["queue"]]

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        clock, start = self._context.clock, self._context.state.get("next", 0)
        for number in range(start, len(self._moments)):
            await clock.sleep(self._moments[number] - clock.monotonic())
            if self.chance.random() < 0.01:
                raise OSError("the device is gone")
            data, key = {"n": number}, f"event-{number}"
            state = {"next": number + 1}
            yield TriggerEvent(
                TriggerType.CUSTOM, "trigger-scheduled", timestamp=clock.now(), data=data, dedupe_key=key, state=state
            )
        while not self._stopped:
            await clock.sleep(WEEK)

    async def stop(self) -> None:
        self._stopped = True


class Flaky:
    """A runner whose sessions take their time, and fail as the seed has it."""

    clock: VirtualClock
    chance: random.Random
    ran: Counter[str]

    async def run(self, request: Any, make_session: Any) -> str:
        await self.clock.sleep(self.chance.uniform(0.1, 60))
        if self.chance.random() < 0.3:
            raise ValueError("this time it fails")
        self.ran[request.session_id] += 1
        return "done"


class Offers:
    """The plugin with both."""

    @hookimpl
    def amplifier_register_trigger(self, register: Any) -> None:
        register("trigger-scheduled", Scheduled)

    @hookimpl
    def amplifier_register_runner(self, register: Any) -> None:
        register("runner-flaky", Flaky)


async def _week(folder: Path, seed: int) -> tuple[str, Counter[str], int]:
    """Live the week; return the digest of its ledger, how many deliveries came to which end, and the store's faults."""
    chance = random.Random(seed)
    clock, store = VirtualClock(), MemoryStore()
    faulty = Faulty(store, random.Random(chance.random()))
    Scheduled.plan = [sorted(chance.uniform(0, WEEK) for _ in range(EVENTS // LANES)) for _ in range(LANES)]
    Scheduled.chance, Flaky.chance = random.Random(chance.random()), random.Random(chance.random())
    Flaky.clock, Flaky.ran = clock, Counter()
    plugins = load_plugins(environ={})
    plugins.register(Offers(), "offers")
    bundle = PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "week"}}, folder))
    ends = sorted(chance.uniform(0, WEEK) for _ in range(7))
    for until in [*ends, WEEK + 24 * 3600]:
        parent = await bundle.create_session(session_id="parent", session_cwd=folder)
        await store.release(str(folder))
        manager = BackgroundSessionManager(
            parent, EventRouter(store, clock=clock), faulty, plugins=plugins, bundle=bundle, clock=clock
        )  # type: ignore[arg-type]
        manager._engine.random, manager._engine.poll = random.Random(chance.random()), 3600.0
        await _live(manager, clock, until)
        await parent.cleanup()
    ends_of = Counter(each.state for each in await store.deliveries(limit=EVENTS * 2))
    return await _ledger(store), ends_of, faulty.failures


async def _live(manager: BackgroundSessionManager, clock: VirtualClock, until: float) -> None:
    """Run the queues until that moment, then end them in the middle of what they do."""
    for number in range(LANES):
        config = {"type": "scheduled", "config": {"queue": number}}
        starting = asyncio.ensure_future(
            manager.start(
                BackgroundSessionConfig(
                    name=f"queue-{number}",
                    triggers=[config],  # type: ignore[list-item]
                    runner="runner-flaky",
                    pool_size=1 + number,
                    max_restarts=1000,
                    max_attempts=3,
                    retry={"delay": 5, "max_delay": 600},  # type: ignore[arg-type]
                )
            )
        )
        while not starting.done():
            await clock.advance(0)
        await starting
    await clock.advance(until - clock.monotonic())
    await manager.stop_all(grace=0)


async def _ledger(store: MemoryStore) -> str:
    """Return a digest of every delivery and of the log, without the ids that are made up anew each time."""
    lines = []
    for each in reversed(await store.deliveries(limit=EVENTS * 2)):
        facts = each.queue, each.event.data["n"], each.state, each.attempts, each.epoch, each.available_at, each.reason
        lines.append("|".join(map(str, facts)))
    lines += [f"{each.name}|{each.timestamp}|{each.data.get('trigger')}" for each in await store.events(limit=10**6)]
    return sha256("\n".join(lines).encode()).hexdigest()


async def test_a_week_of_faults_ends_with_the_same_ledger_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(watch, "ENDING", 0)  # the only time in it that is not simulated
    digest, ends, failures = await _week(tmp_path, SEED)
    assert set(ends) == {"done", "dead"}
    assert ends.total() == EVENTS // LANES * LANES
    assert len(Flaky.ran) >= ends["done"] > ends["dead"]
    assert failures
    sys.stdout.write(f"{dict(ends)}, {failures} faults of the store: {digest}\n")
    assert await _week(tmp_path, SEED) == (digest, ends, failures)
