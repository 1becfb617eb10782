"""One look at the store serves the idle workers of all background sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.due_queues import DueQueues
from amplifier_core.errors import StoreDamaged
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock

from .bench import Bench

OpenBench = Callable[..., Any]
NAMES = [f"session-{number}" for number in range(20)]


class Counting:
    """A store that counts how often it is asked for something."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self.asked: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        self.asked[name] = self.asked.get(name, 0) + 1
        return getattr(self._store, name)


async def find_damage(*_: object, **__: object) -> set[str]:
    raise StoreDamaged("store.db", "is damaged")


async def start_many(bench: Bench) -> None:
    for name in NAMES:
        await bench.start(name=name)


async def accept_elsewhere(bench: Bench, name: str) -> None:
    """Accept an event as another process does: no worker here hears of it."""
    background = bench.manager._find(name)
    event = TriggerEvent(TriggerType.CUSTOM, "elsewhere", data={"n": 7}, timestamp=bench.clock.now())
    place = (background.project, background.queue, "elsewhere")
    assert await bench.store.enqueue(*place, event, now=bench.clock.now())


async def test_idle_background_sessions_look_at_the_store_once_a_second_together(
    open_bench: OpenBench, store: DurableStore
) -> None:
    counting = Counting(store)
    async with open_bench(counting) as bench:
        counting.asked.clear()  # it was asked whether it has these methods
        await start_many(bench)
        await bench.holds(lambda: counting.asked.get("next_due", 0) >= len(NAMES))  # each worker has looked once
        await bench.clock.until_sleeping(1)
        counting.asked.clear()
        await bench.clock.advance(10)
        assert counting.asked == {"due_queues": 10}


@pytest.mark.parametrize("looks", [True, False], ids=["one look for all", "each worker looks"])
async def test_an_event_of_another_process_is_handled_within_a_second(open_bench: OpenBench, looks: bool) -> None:
    async with open_bench() as bench:
        bench.manager._engine.lookout.looks = looks  # a store without `due_queues` has workers that look
        await start_many(bench)
        await accept_elsewhere(bench, NAMES[13])
        await bench.clock.advance(1)
        await bench.until("completed")
        assert bench.told("started", "delivery")[0].queue.endswith(NAMES[13])


async def test_events_of_other_processes_are_handled_after_damage_that_only_the_look_met(
    open_bench: OpenBench, store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        await start_many(bench)
        with monkeypatch.context() as damaged:
            damaged.setattr(store, "due_queues", find_damage)
            await bench.clock.advance(2)
        await accept_elsewhere(bench, NAMES[13])
        await bench.clock.advance(1)
        await bench.until("completed")
        assert bench.handled() == [7]


async def test_a_claim_of_a_dead_process_is_taken_up_when_its_lease_is_over(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await start_many(bench)
        await accept_elsewhere(bench, NAMES[2])
        queue = bench.manager._find(NAMES[2]).queue
        dead = {"owner": "dead", "lease": 30.0, "session_id": "lost"}
        assert await bench.store.claim(bench.manager._project, queue, **dead, now=bench.clock.now())
        await bench.clock.advance(29)
        assert bench.handled() == []
        await bench.until("completed", step=0.25)
        assert bench.handled() == [7]


async def test_refusals_of_a_minute_are_reported_without_a_further_event(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(condition="n < 0")
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("refused", count=3)
        assert bench.told("refusals", "count") == [1]
        await bench.clock.advance(62)
        assert bench.told("refusals", "count") == [1, 2]


async def test_what_is_resumed_is_handled_at_once(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(name="one")
        await bench.manager.change("one", "paused")
        bench.trigger.feed(1)
        await bench.until("accepted")
        await bench.clock.advance(60)
        assert bench.handled() == []
        await bench.manager.change("one", "running")
        await bench.until("completed")


async def test_the_stores_of_ours_name_their_queues(store: DurableStore) -> None:
    assert isinstance(store, DueQueues)


async def test_nothing_looks_after_the_last_background_session_has_stopped(open_bench: OpenBench) -> None:
    clock = VirtualClock()
    async with open_bench(clock=clock) as bench:
        await start_many(bench)
        await bench.manager.stop_all()
        assert clock.sleeping == 0
