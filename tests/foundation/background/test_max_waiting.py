"""Test the bound of the events that wait in a queue."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from amplifier_core import TriggerEvent
from amplifier_core.errors import QueueFull
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation.background import queue_room
from amplifier_foundation.background.queue_room import CALM, QueueRoom

from .bench import FedTrigger

OpenBench = Callable[..., Any]
FULL = "2 events wait, as many as max_waiting allows"


async def test_a_trigger_that_can_wait_is_held_back_and_nothing_is_lost(
    open_bench: OpenBench, held: list[dict[str, Any]]
) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(max_waiting=2)
        await bench.manager.change("queue", "paused")
        for n in range(6):
            bench.trigger.feed(n)
        await bench.holds(lambda: FULL in bench.told("state", "reason"), 0.1)
        [row] = bench.manager.get_status().values()
        assert (row["status"], row["reason"], row["refused"]) == ("degraded", FULL, 0)
        assert (await bench.states(), bench.trigger.queue.qsize()) == (["pending"] * 2, 3)
        assert not await bench.manager.is_idle(caught_up=True)
        await bench.manager.change("queue", "running")
        await bench.until("session", step=0.1)
        bench.held().go.set()
        await bench.until("completed", count=6, step=0.1)
        assert bench.handled() == [*range(6)]
        await bench.holds(lambda: bench.statuses() == {"queue": "running"}, 1)
        assert bench.told("state", "status") == ["running", "paused", "degraded", "running"]


async def test_a_queue_that_is_full_again_and_again_is_told_once_until_it_has_been_calm_for_a_while(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_room, "CALM", math.inf)
    async with open_bench() as bench:
        await bench.start(max_waiting=2)
        for n in range(40):
            bench.trigger.feed(n)
        await bench.until("completed", count=40, step=0.1)
        assert (bench.statuses(), bench.told("state", "status")) == ({"queue": "degraded"}, ["running", "degraded"])
        monkeypatch.setattr(queue_room, "CALM", 0)
        await bench.holds(lambda: bench.statuses() == {"queue": "running"}, 1)
        assert bench.told("state", "status") == ["running", "degraded", "running"]


async def test_a_trigger_with_callers_refuses_and_it_is_counted_and_told_once(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[str] = []

    async def watch(self: FedTrigger) -> AsyncIterator[TriggerEvent]:
        while isinstance(item := await self.queue.get(), TriggerEvent):
            try:
                yield item
            except QueueFull as error:
                problems.append(error.problem)

    monkeypatch.setattr(FedTrigger, "watch", watch)
    monkeypatch.setattr(FedTrigger, "answers_callers", True, raising=False)
    async with open_bench() as bench:
        await bench.start(max_waiting=2)
        await bench.manager.change("queue", "paused")
        for n in range(12):
            bench.trigger.feed(n)
        await bench.holds(lambda: len(problems) == 10)
        [row] = bench.manager.get_status().values()
        assert (row["refused"], row["status"], row["reason"]) == (10, "degraded", FULL)
        assert (problems, bench.told("refusals", "text")) == ([FULL] * 10, [FULL])
        await bench.manager.change("queue", "running")
        await bench.holds(lambda: bench.statuses() == {"queue": "running"}, 1)
        bench.trigger.feed(99)
        await bench.until("completed", count=3, step=0.1)
        assert await bench.numbers() == [0, 1, 99]


async def test_the_store_is_asked_once_for_many_events(store: DurableStore) -> None:
    asked: list[str] = []

    class Counting:
        async def delivery_counts(self, **place: str) -> list[Any]:
            asked.append(place["queue"])
            return await store.delivery_counts(**place)

    room = QueueRoom(1_000, VirtualClock())
    assert all([await room.take(Counting(), "/p", "queue") for _ in range(1_000)])  # type: ignore[arg-type]
    assert (asked, room.is_calm) == (["queue"], True)


async def test_a_queue_is_calm_when_no_event_was_without_a_place_for_a_while(store: DurableStore) -> None:
    room = QueueRoom(0, clock := VirtualClock())
    for _ in range(2):
        assert not await room.take(store, "/p", "queue")
        await clock.advance(CALM - 1)
        assert not room.is_calm
    await clock.advance(1)
    assert room.is_calm
