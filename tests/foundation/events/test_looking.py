"""Readers of a stored log hear of other processes by one look for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.testing import MemoryStore
from amplifier_foundation import EventRouter
from amplifier_foundation.events import looking

if TYPE_CHECKING:
    from amplifier_foundation import Subscription

READERS = 30


class Counting(MemoryStore):
    """Counts the questions, and cannot be used while it is not `well`."""

    looks = reads = 0
    well = True

    async def last_sequence(self) -> int:
        self.looks += 1
        if not self.well:
            raise StoreUnavailable("/store", "gone")
        return await super().last_sequence()

    async def events(self, **wanted: Any) -> list[SessionEvent]:
        self.reads += 1
        if not self.well:
            raise StoreUnavailable("/store", "gone")
        return await super().events(**wanted)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_EVERY", 0.05)


def subscribe(router: EventRouter, count: int = READERS) -> list[Subscription]:
    return [router.subscribe([f"name-{number}", "all"], since=0) for number in range(count)]


async def next_names(readers: list[Subscription]) -> list[str]:
    async with asyncio.timeout(60):
        return [event.name for event in await asyncio.gather(*(anext(each) for each in readers))]


async def test_idle_readers_look_together() -> None:
    store = Counting()
    waiting = [asyncio.ensure_future(anext(each)) for each in subscribe(EventRouter(store))]
    await asyncio.sleep(0.2)
    store.looks = store.reads = 0
    await asyncio.sleep(0.5)
    assert 5 <= store.looks <= 11
    assert store.reads == 0
    for each in waiting:
        each.cancel()


async def test_events_of_other_processes_come_to_every_reader() -> None:
    store = Counting()
    readers = subscribe(EventRouter(store))
    hearing = asyncio.ensure_future(next_names(readers))
    await asyncio.sleep(0.2)
    await store.emit(SessionEvent("all", {}))
    assert await hearing == ["all"] * READERS


async def test_events_of_others_come_among_many_own_ones() -> None:
    store = Counting()
    router = EventRouter(store)
    [reader, *_] = subscribe(router)
    hearing = asyncio.ensure_future(next_names([reader]))
    await asyncio.sleep(0.1)
    for number in range(20):
        await router.emit("own", {})
        if number == 10:
            await store.emit(SessionEvent("name-0", {}))
        await asyncio.sleep(0.01)
    assert await hearing == ["name-0"]


async def test_own_events_wake_nobody_who_does_not_ask_for_them() -> None:
    store = Counting()
    router = EventRouter(store)
    waiting = [asyncio.ensure_future(anext(each)) for each in subscribe(router)]
    await asyncio.sleep(0.2)
    store.reads = 0
    for _ in range(20):
        await router.emit("own", {})
        await asyncio.sleep(0.01)
    assert store.reads == 0
    for each in waiting:
        each.cancel()


async def test_the_look_passes_on_when_its_reader_leaves() -> None:
    store = Counting()
    first, *others = subscribe(EventRouter(store))
    leaving = asyncio.ensure_future(anext(first))
    hearing = asyncio.ensure_future(next_names(others))
    await asyncio.sleep(0.1)
    leaving.cancel()
    first.close()
    await asyncio.sleep(0.1)
    await store.emit(SessionEvent("all", {}))
    assert await hearing == ["all"] * len(others)


@pytest.mark.parametrize("at_once", [True, False], ids=["at the same moment", "one after the other"])
async def test_the_look_passes_on_when_many_readers_leave(at_once: bool) -> None:
    store = Counting()
    readers = subscribe(EventRouter(store))
    leaving = [asyncio.ensure_future(anext(each)) for each in readers[:-1]]
    hearing = asyncio.ensure_future(next_names(readers[-1:]))
    await asyncio.sleep(0.1)
    for each in leaving:
        each.cancel()
        if not at_once:
            await asyncio.sleep(0)  # the next one has been woken to look, and leaves as well
    await asyncio.sleep(0.1)
    await store.emit(SessionEvent("all", {}))
    assert await hearing == ["all"]


async def test_a_store_that_cannot_be_used_fails_every_reader() -> None:
    store = Counting()
    waiting = [asyncio.ensure_future(anext(each)) for each in subscribe(EventRouter(store))]
    await asyncio.sleep(0.1)
    store.well = False
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in ended} == {StoreUnavailable}


async def test_a_closed_reader_has_not_passed_what_it_has_fetched_and_not_read() -> None:
    store = Counting()
    for _ in range(2):
        await store.emit(SessionEvent("all", {}))
    [reader] = subscribe(EventRouter(store), 1)
    assert await next_names([reader]) == ["all"]
    reader.close()
    assert getattr(reader, "passed", 2) is None
