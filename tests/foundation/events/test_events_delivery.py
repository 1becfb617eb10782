"""The event router's promises: nothing twice, nothing lost in silence, nothing that one reader can do to another."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import doctest
import gc
import json
import pickle
from array import array
from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import pytest

from amplifier_core.events import SessionEvent
from amplifier_core.storage import DurableStore
from amplifier_core.testing.clock import VirtualClock
from amplifier_foundation import EventRouter, SubscriberLagged, Subscription
from amplifier_foundation.events import Overflow, router
from amplifier_foundation.events.log import BLOCK, LOOSE


async def ticks(router: EventRouter, count: int, first: int = 0, **fields: Any) -> None:
    for n in range(first, first + count):
        await router.emit("tick", {"n": n}, **fields)


async def read(subscription: Subscription, count: int) -> list[int]:
    return [(await anext(subscription)).data["n"] for _ in range(count)]


# who is told what


async def test_e1_names_that_overlap_deliver_an_event_once() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*", "tick", "ti*", "tick"])
    await ticks(router, 2)
    assert (await read(subscription, 2), subscription.lag) == ([0, 1], 0)


async def test_an_event_whose_id_is_taken_gets_one_of_its_own(store: DurableStore) -> None:
    router = EventRouter(store)
    emitted = [await router.emit("work", {"n": 1}, "a", event_id="k") for _ in range(3)]
    assert emitted[0].event_id == "k"
    assert len({event.event_id for event in emitted}) == 3
    assert [event.event_id for event in await store.events()] == [event.event_id for event in emitted]


async def test_e2_what_is_emitted_right_after_subscribing_is_seen() -> None:
    router = EventRouter()
    early = router.subscribe(["tick"])
    await ticks(router, 1)
    late = router.subscribe(["tick"])
    await ticks(router, 1, first=1)
    assert (await read(early, 2), await read(late, 1)) == ([0, 1], [1])
    assert (early.lag, late.lag) == (0, 0)


async def test_e3_events_of_others_take_no_room() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], ["mine"], queue_size=2)
    await ticks(router, 2, source_session_id="mine")
    await ticks(router, 500, source_session_id="other")
    assert (subscription.lag, subscription.dropped) == (2, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(n=2),
        lambda data: data.__setitem__("n", 2),
        lambda data: data.pop("n"),
        lambda data: data.setdefault("m", 2),
        lambda data: data["items"].append(2),
        lambda data: data["items"].__setitem__(0, 2),
        lambda data: data["items"].sort(),
        lambda data: data["items"][0].clear(),
        lambda data: data["deep"]["er"].update(x=1),
    ],
)
async def test_e4_a_payload_can_be_changed_by_nobody(change: Any) -> None:
    router = EventRouter()
    payload = {"n": 1, "items": [{"a": 1}], "deep": {"er": {}}}
    subscription = router.subscribe(["*"])
    await router.emit("work", payload)
    payload["items"].append("by the emitter")  # type: ignore[attr-defined]
    event = await anext(subscription)
    with pytest.raises(TypeError, match="shared by all its readers: change a copy"):
        change(event.data)
    assert event.data == {"n": 1, "items": [{"a": 1}], "deep": {"er": {}}}


async def test_a_payload_is_json_and_its_copies_can_be_changed() -> None:
    data = (await EventRouter().emit("work", {"items": [{"a": 1}], "pair": (1, [2]), "set": {3}})).data
    copies = [copy.deepcopy(data), {**data}, dict(data), copy.copy(data)]
    copies[0]["items"][0]["a"] = 2
    for each in copies:
        each["new"] = True
    assert json.loads(json.dumps(data["items"])) == [{"a": 1}]
    assert pickle.loads(pickle.dumps(data)) == data == {"items": [{"a": 1}], "pair": (1, [2]), "set": {3}}


async def test_data_that_is_frozen_already_is_not_copied_again() -> None:
    router = EventRouter()
    first = await router.emit("work", {"items": [1]})
    assert (await router.emit("work", first.data)).data is first.data


def test_e5_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(router).failed == 0
    assert doctest.testmod(router).attempted > 0


# those who are slow


async def test_e6_the_newest_may_be_dropped_instead() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=2, overflow="drop_newest")
    await ticks(router, 5)
    assert (await read(subscription, 2), subscription.dropped) == ([0, 1], 3)
    await ticks(router, 1, first=5)
    assert (await read(subscription, 1), subscription.stats.delivered) == ([5], 3)


async def test_e6_emit_waits_for_a_reader_that_blocks_it() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=2, overflow="block")
    seen: list[int] = []
    async with asyncio.TaskGroup() as group:
        emitting = group.create_task(ticks(router, 6))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (emitting.done(), subscription.lag) == (False, 2)
        async for event in subscription:
            seen.append(event.data["n"])
            assert subscription.lag <= 2
            if len(seen) == 6:
                break
    assert (seen, subscription.dropped) == (list(range(6)), 0)


async def test_a_reader_that_leaves_blocks_nobody() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=1, overflow="block")
    async with asyncio.TaskGroup() as group:
        emitting = group.create_task(ticks(router, 3))
        await asyncio.sleep(0)
        assert not emitting.done()
        subscription.close()
    assert router.subscriber_count == 0


async def test_what_is_published_without_waiting_is_not_lost_to_a_reader_that_blocks() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=1, overflow="block")
    for n in range(5):
        router.publish(SessionEvent("tick", {"n": n}))
    assert (subscription.lag, await read(subscription, 5)) == (5, list(range(5)))


async def test_a_stored_event_without_subscribers_is_read_from_the_store(store: DurableStore) -> None:
    router = EventRouter(store)
    router.publish(await store.emit(SessionEvent("tick", {"n": 0})))
    async with router.subscribe(["other"]) as others, router.subscribe(["tick"], since=0) as late:
        router.publish(await store.emit(SessionEvent("tick", {"n": 1})))
        router.publish(await store.emit(SessionEvent("tick", {"n": 2})))
        assert await read(late, 3) == [0, 1, 2]
        assert others.lag == 0
        async with router.subscribe(["tick"]) as live:
            router.publish(await store.emit(SessionEvent("tick", {"n": 3})))
            assert (await read(live, 1), await read(late, 1)) == ([3], [3])
            with pytest.raises(TypeError, match="shared"):
                router.publish(await store.emit(SessionEvent("tick", {"n": 4})))
                (await anext(live)).data["n"] = 5


async def test_e6_an_error_ends_the_reader_and_says_how_far_behind_it_was() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=3, overflow="error")
    await ticks(router, 2)
    assert await read(subscription, 1) == [0]
    await ticks(router, 4, first=2)
    for _ in range(2):
        with pytest.raises(SubscriberLagged, match="a subscriber to tick is 4 events behind, and 3 may wait"):
            await anext(subscription)
    assert (subscription.dropped, router.subscriber_count) == (4, 0)


async def test_an_unknown_rule_of_overflow_is_refused_with_those_there_are() -> None:
    wrong: Any = "drop"
    for since in (None, 0):
        with pytest.raises(
            ValueError, match="^overflow: must be one of drop_oldest, drop_newest, block, error, not 'drop'$"
        ):
            EventRouter().subscribe(["tick"], overflow=wrong, since=since)


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "error"])
async def test_drops_are_told_at_most_once_a_second_and_the_telling_is_not_counted(overflow: Overflow) -> None:
    clock = VirtualClock()
    router = EventRouter(clock=clock)
    notices, everything = router.subscribe(["router:*"], queue_size=2), router.subscribe(["*"], queue_size=None)
    slow = router.subscribe(["tick"], queue_size=4, overflow=overflow)
    await ticks(router, 50)
    first = await anext(notices)
    assert (first.name, first.source_session_id) == ("router:overflow", None)
    assert first.data["names"] == ["tick"] and first.data["overflow"] == overflow and first.data["dropped"] >= 1
    assert (notices.lag, everything.lag) == (0, 50)
    for _ in range(6):
        await clock.advance(1.1)
        await ticks(router, 8)
    assert (notices.lag, notices.dropped) == (0 if overflow == "error" else 2, 0)
    assert slow.dropped == (5 if overflow == "error" else 94)


async def test_a_loop_that_was_left_behind_goes_on_with_what_may_still_wait() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"], queue_size=3)
    seen: list[int] = []
    await ticks(router, 2)
    async for event in subscription:
        seen.append(event.data["n"])
        if len(seen) == 1:
            await ticks(router, BLOCK + 10, first=2)
            assert (subscription.dropped, subscription.lag) == (BLOCK + 8, 3)
        if not subscription.lag:
            break
    assert seen == [0, BLOCK + 9, BLOCK + 10, BLOCK + 11]
    assert subscription.stats.delivered == 4


async def test_a_loop_over_a_subscription_that_is_closed_ends_at_once() -> None:
    router = EventRouter()
    subscription, other = router.subscribe(["tick"]), router.subscribe(["tick"])
    await ticks(router, 3)
    seen: list[int] = []
    async for event in subscription:
        seen.append(event.data["n"])
        subscription.close()
        await ticks(router, 3, first=3)
    assert (seen, subscription.stats.delivered, subscription.lag, other.lag) == ([0], 1, 0, 6)


async def test_leaving_a_loop_loses_nothing() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"])
    await ticks(router, 5)
    async for event in subscription:
        if event.data["n"] == 1:
            break
    assert (subscription.lag, await read(subscription, 3)) == (3, [2, 3, 4])


async def test_a_long_backlog_is_packed_and_arrives_whole() -> None:
    router = EventRouter(history=1)
    slow = router.subscribe(["tick"], queue_size=None)
    count = (LOOSE + 3) * BLOCK
    first = await router.emit("tick", {"n": 0, "items": [{}]}, "s-1", cause="c", depth=3)
    await ticks(router, count - 1, first=1)
    begun = slow._channel.log.tail
    assert (slow.lag, slow._block._events, begun._events is not None) == (count, None, True)
    seen = [event async for event in _some(slow, count)]
    assert seen[0] == dataclasses.replace(first) and seen[0].event_id == first.event_id
    assert [event.data["n"] for event in seen] == list(range(count))
    assert len({event.event_id for event in seen[-100:]}) == 100


async def _some(subscription: Subscription, count: int) -> Any:
    for _ in range(count):
        yield await anext(subscription)


PACKED: list[Any] = [(1, (2,)), {3}, b"\xff", float("nan"), {4: 5}, [{"a": [{"b": (1, [2])}]}], True, 2**70, "\ud800"]
LOOSE_ONES: list[Any] = [
    *(Decimal("1.5"), datetime(2026, 1, 1, tzinfo=UTC), HTTPStatus.OK),
    *(bytearray(b"\xff"), array("i", [1]), {(1, 2)}),
]


@pytest.mark.parametrize("odd", [*PACKED, *LOOSE_ONES], ids=repr)
async def test_data_of_any_class_waits_and_arrives_as_it_was(odd: Any) -> None:
    router = EventRouter(history=1)
    slow, quick = (router.subscribe(["tick"], queue_size=None) for _ in range(2))
    await router.emit("tick", {"n": 0, "odd": odd})
    at_once = (await anext(quick)).data["odd"]
    await ticks(router, (LOOSE + 2) * BLOCK, first=1)
    is_packed = slow._block._events is None  # type: ignore[attr-defined]
    assert is_packed == any(odd is each for each in PACKED)
    arrived = (await anext(slow)).data["odd"]
    assert (type(arrived), repr(arrived)) == (type(at_once), repr(at_once))


# what was before


async def test_e7_a_late_subscriber_gets_what_came_after_a_sequence() -> None:
    router = EventRouter()
    await ticks(router, 5)
    await router.emit("other", {})
    late = router.subscribe(["tick"], since=2, queue_size=1)
    await ticks(router, 1, first=5)
    assert (late.lag, await read(late, 4), late.dropped) == (4, [2, 3, 4, 5], 0)
    assert late.stats.delivered == 4


async def test_history_is_bounded_and_says_so() -> None:
    router = EventRouter(history=3)
    await ticks(router, 5)
    assert await read(router.subscribe(["tick"], since=2), 3) == [2, 3, 4]
    with pytest.raises(SubscriberLagged, match="the events 2 to 2 are not kept any more"):
        router.subscribe(["tick"], since=1)


async def test_e7_with_a_store_the_log_is_read_at_the_readers_pace(store: DurableStore) -> None:
    before = EventRouter(store)
    await ticks(before, 30)
    router = EventRouter(store)
    subscription = router.subscribe(["tick"], since=10, queue_size=1)
    await ticks(router, 10, first=30)
    await router.emit("other", {})
    assert await read(subscription, 30) == list(range(10, 40))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(read(subscription, 1))
        await asyncio.sleep(0)
        await ticks(router, 1, first=40)
    assert waiting.result() == [40]
    assert (subscription.stats.delivered, subscription.dropped, subscription.lag) == (31, 0, 0)
    subscription.close()
    assert [event async for event in subscription] == []


async def test_an_event_of_a_store_has_its_sequence_and_a_payload_that_nobody_can_change(store: DurableStore) -> None:
    router = EventRouter(store)
    subscription = router.subscribe(["*"])
    emitted = await router.emit("work", {"items": [1]})
    [stored] = await store.events()
    assert (await anext(subscription)) is emitted
    assert (emitted.sequence, emitted.event_id) == (stored.sequence, stored.event_id) == (1, emitted.event_id)
    with pytest.raises(TypeError):
        emitted.data["items"].append(2)


# threads, loops, leaving


async def test_e8_any_thread_may_emit() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"])
    payload = {"n": 1}

    def emit() -> SessionEvent:
        emitting = router.emit_threadsafe("tick", payload, "s-1")
        payload["n"] = 2
        return emitting.result(30)

    event = await asyncio.to_thread(emit)
    assert await anext(subscription) is event
    assert (event.data, event.source_session_id) == ({"n": 1}, "s-1")


def test_e8_a_router_that_no_loop_uses_says_so() -> None:
    router = EventRouter()
    with pytest.raises(RuntimeError, match="belongs to no running event loop"):
        router.emit_threadsafe("tick", {})


def test_e8_a_router_outlives_its_loop() -> None:
    router = EventRouter()

    async def once() -> list[int]:
        async with router.subscribe(["tick"]) as subscription:
            await ticks(router, 2)
            return await read(subscription, 2)

    assert [asyncio.run(once()) for _ in range(2)] == [[0, 1], [0, 1]]


async def test_e9_names_that_nobody_asks_for_any_more_are_forgotten() -> None:
    router = EventRouter()
    for n in range(3_000):
        router.subscribe([f"name-{n}", "shared:*"]).close()
        await router.emit(f"name-{n}", {})
    assert (len(router._index), len(router._channels), len(router._routes) <= 1_024) == (0, 0, True)


async def test_e10_closing_is_idempotent_and_ends_every_reader() -> None:
    router = EventRouter()
    subscriptions = [router.subscribe(["tick"]) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(anext(subscription, None)) for subscription in subscriptions]
        await asyncio.sleep(0)
        router.close()
        router.close()
    assert [reader.result() for reader in readers] == [None] * 3
    with pytest.raises(RuntimeError, match="the router is closed"):
        router.subscribe(["tick"])


async def test_a_subscription_that_nobody_holds_is_gone() -> None:
    router = EventRouter()
    await ticks(router, 1)
    async for _ in router.subscribe(["tick"], since=0):
        break
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert router.subscriber_count == 0


async def test_a_reader_that_gives_up_waiting_leaves_nothing_behind() -> None:
    router = EventRouter()
    subscription = router.subscribe(["tick"])
    for _ in range(50):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(subscription)
    assert len(subscription._channel._waiters) < 12
    await ticks(router, 1)
    assert await read(subscription, 1) == [0]


# names, chains, figures


@pytest.mark.parametrize("names", [[], "tick", [""], ["a*b"], ["**"]])
async def test_names_that_nothing_could_match_are_refused(names: Any) -> None:
    with pytest.raises(ValueError, match=r"event name"):
        EventRouter().subscribe(names)


async def test_a_queue_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 events cannot wait"):
        EventRouter().subscribe(["*"], queue_size=0)


async def test_e11_events_have_an_id_a_cause_and_a_depth() -> None:
    router = EventRouter()
    first = await router.emit("a", {})
    second = await router.emit("b", {}, cause=first.event_id, depth=1)
    assert (second.cause, second.depth) == (first.event_id, 1)
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.event_id != second.event_id and len(first.event_id) == 32


async def test_an_emitted_event_is_an_ordinary_frozen_one_with_an_id_of_its_own() -> None:
    router = EventRouter()
    events = [await router.emit("a", {"n": 1}) for _ in range(100)]
    assert {type(event) for event in events} == {SessionEvent}
    assert len({event.event_id for event in events}) == 100
    assert events[0] == dataclasses.replace(events[0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        (await router.emit("a", {})).name = "b"  # type: ignore[misc]


async def test_a_name_among_the_sources_means_each_session_of_that_name() -> None:
    router = EventRouter()
    reviews = router.subscribe(["*"], ["review"])
    ids = ["review-3f9a0c1b77de", "re-review-3f9a0c1b77de", "review-3f9a", "review", "review-2-000000000000"]
    for session_id in [*ids, None]:
        await router.emit("done", {}, session_id)
    assert [(await anext(reviews)).source_session_id for _ in range(reviews.lag)] == ["review-3f9a0c1b77de", "review"]


async def test_e12_every_subscription_says_how_it_fares() -> None:
    router = EventRouter()
    quick, slow = router.subscribe(["tick"]), router.subscribe(["ti*"], queue_size=2)
    await ticks(router, 5)
    await read(quick, 4)
    await read(slow, 1)
    stats = {each.names: each for each in router.stats}
    assert (stats["tick",].lag, stats["tick",].delivered, stats["tick",].dropped) == (1, 4, 0)
    assert (stats["ti*",].lag, stats["ti*",].delivered, stats["ti*",].dropped) == (1, 1, 3)
