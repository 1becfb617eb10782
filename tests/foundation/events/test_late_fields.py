"""The time and the id of an emitted event: made when somebody reads them, and the same for everybody from then on."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.events import SessionEvent
from amplifier_core.late_fields import read_moment
from amplifier_core.testing.clock import VirtualClock
from amplifier_foundation import EventRouter, SubscriberLagged
from amplifier_foundation.events.log import BLOCK, LOOSE

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_the_time_is_that_of_the_emit_however_late_it_is_read() -> None:
    before = datetime.now(UTC)
    event = await EventRouter().emit("tick", {})
    after = datetime.now(UTC)
    await asyncio.sleep(0.01)
    assert isinstance(read_moment(event), int)
    assert before <= event.timestamp <= after
    assert event.timestamp is event.timestamp is read_moment(event)
    assert event.timestamp.utcoffset() == timedelta(0)


async def test_times_do_not_go_back_from_one_event_to_the_next() -> None:
    router = EventRouter()
    events = [await router.emit("tick", {}) for _ in range(1_000)]
    assert events == sorted(events, key=lambda event: event.timestamp)


async def test_the_time_of_a_router_with_a_clock_of_its_own_is_that_of_the_clock() -> None:
    clock = VirtualClock()
    event = await EventRouter(clock=clock).emit("tick", {})
    emitted_at = clock.now()
    await clock.advance(5)
    assert event.timestamp == emitted_at


async def test_threads_that_read_at_once_read_one_id_and_one_time() -> None:
    router, readers = EventRouter(), 4
    events = [await router.emit("tick", {}) for _ in range(200)]
    start = Barrier(readers)

    def read_all() -> list[tuple[str, datetime]]:
        start.wait(30)
        return [(event.event_id, event.timestamp) for event in events]

    with ThreadPoolExecutor(readers) as pool:
        seen = [each.result(30) for each in [pool.submit(read_all) for _ in range(readers)]]
    assert all(each == seen[0] for each in seen)
    assert len({event_id for event_id, _ in seen[0]}) == len(events)


def test_a_forked_process_makes_ids_of_its_own() -> None:
    events: list[SessionEvent] = []
    asyncio.run(_emit_three(events))
    first, ours, theirs = events
    known = first.event_id
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, theirs.event_id.encode())
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        os.close(writing)
        made_there = pipe.read()
    assert len(made_there) == 32
    assert made_there not in {known, ours.event_id, theirs.event_id}


async def _emit_three(events: list[SessionEvent]) -> None:
    """Return nothing: `asyncio.run` makes a text of what its task returns, and the text has the id."""
    router = EventRouter()
    for _ in range(3):
        events.append(await router.emit("tick", {}))


@pytest.mark.parametrize(
    "same",
    [copy.copy, copy.deepcopy, dataclasses.replace, lambda event: pickle.loads(pickle.dumps(event))],
    ids=["copy", "deepcopy", "replace", "pickle"],
)
async def test_a_copy_of_an_event_that_nobody_has_read_is_equal(same: Callable[[Any], SessionEvent]) -> None:
    event = await EventRouter().emit("tick", {"n": 1}, "s-1", cause="c", depth=2, project="/p")
    made = same(event)
    assert made == event and made.event_id == event.event_id and repr(made) == repr(event)
    assert type(made) is SessionEvent


async def test_an_emitted_event_is_what_the_constructor_makes_of_its_fields() -> None:
    event = await EventRouter().emit("tick", {"n": 1}, "s-1", cause="c", depth=2, project="/p")
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(SessionEvent)}
    assert SessionEvent(**values) == event
    assert event != await EventRouter().emit("tick", {"n": 1}, "s-1", cause="c", depth=2, project="/p")


async def test_time_and_id_of_an_event_cannot_be_set() -> None:
    event = await EventRouter().emit("tick", {})
    for name, value in {"timestamp": datetime.now(UTC), "event_id": "other"}.items():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, name, value)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(event, name)


async def test_an_event_that_was_packed_has_the_time_and_the_id_that_its_emitter_reads() -> None:
    router = EventRouter(history=1)
    slow = router.subscribe(["tick"], queue_size=None)
    first_block = [await router.emit("tick", {}) for _ in range(BLOCK)]
    unread, read = await router.emit("tick", {}), await router.emit("tick", {})
    known = (read.event_id, read.timestamp)
    for _ in range((LOOSE + 2) * BLOCK):
        await router.emit("tick", {})
    for event in first_block:  # the reader holds the block where it began
        assert await anext(slow) is event
    first, second = await anext(slow), await anext(slow)
    assert first is not unread and first == unread
    assert (first.event_id, first.timestamp) == (unread.event_id, unread.timestamp)
    assert (second.event_id, second.timestamp) == known


# what an emit finds out once


async def test_a_filter_with_sources_beside_one_without_sees_its_sources_alone() -> None:
    router = EventRouter()
    everything = router.subscribe(["tick"])
    await router.emit("tick", {}, "a")
    mine = router.subscribe(["ti*"], ["a"])
    for source in ("b", "a", "b", None, "a"):
        await router.emit("tick", {}, source)
    assert (everything.lag, mine.lag) == (6, 2)
    mine.close()
    await router.emit("tick", {}, "b")
    assert everything.lag == 7


async def test_emitted_and_published_events_are_numbered_together() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"])
    await router.emit("tick", {})
    router.publish(SessionEvent("tick", {}, sequence=77))
    await router.emit("tick", {})
    assert [(await anext(subscription)).sequence for _ in range(3)] == [1, 2, 3]


async def test_a_loop_of_a_reader_that_lagged_ends_with_the_error() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=2, overflow="error")
    seen: list[int] = []

    async def read_all() -> None:
        async for event in subscription:
            seen.append(event.data["n"])

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(asyncio.wait({asyncio.ensure_future(read_all())}))
        await asyncio.sleep(0)
        await router.emit("tick", {"n": 0})
        for _ in range(3):
            await asyncio.sleep(0)
        for n in range(1, 5):
            await router.emit("tick", {"n": n})
    [task] = reading.result()[0]
    assert seen == [0]
    assert isinstance(task.exception(), SubscriberLagged)


async def test_a_waiting_reader_that_is_cancelled_loses_nothing_and_hinders_nobody() -> None:
    router = EventRouter()
    left, stays = router.subscribe(["tick"]), router.subscribe(["tick"])
    async with asyncio.TaskGroup() as group:
        cancelled, waiting = group.create_task(anext(left, None)), group.create_task(anext(stays, None))
        await asyncio.sleep(0)
        await router.emit("tick", {"n": 1})
        cancelled.cancel()
    assert cancelled.cancelled()
    event = waiting.result()
    assert event is not None and event.data == {"n": 1}
    assert (await anext(left)).data == {"n": 1}
