"""The event router: who sees what, when, and what happens to those who are slow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from weakref import ref

import pytest

from amplifier_foundation import EventRouter, SubscriberLagged
from amplifier_foundation.events.log import BLOCK


async def test_a_subscriber_sees_every_event_from_the_moment_it_subscribes() -> None:
    router = EventRouter()
    await router.emit("work:done", {"n": 0})
    subscription = router.subscribe(["work:done"])
    await router.emit("work:done", {"n": 1}, "session-1")
    await router.emit("work:done", {"n": 2}, "session-2")

    first, second = await anext(subscription), await anext(subscription)

    assert [first.data["n"], second.data["n"]] == [1, 2]
    assert (first.source_session_id, second.source_session_id) == ("session-1", "session-2")
    assert first.timestamp.tzinfo is not None


async def test_an_event_that_matches_two_names_is_seen_once() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*", "a", "a"])
    await router.emit("a", {})
    await router.emit("b", {})
    assert [(await anext(subscription)).name, (await anext(subscription)).name] == ["a", "b"]
    assert subscription.lag == 0


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (["work:*"], ["work:done", "work:failed"]),
        (["*"], ["work:done", "other", "work:failed"]),
        (["other"], ["other"]),
    ],
)
async def test_names_match_exactly_by_prefix_or_all(names: list[str], seen: list[str]) -> None:
    router = EventRouter()
    subscription = router.subscribe(names)
    for name in ("work:done", "other", "work:failed"):
        await router.emit(name, {})
    assert [(await anext(subscription)).name for _ in seen] == seen
    assert subscription.lag == 0


async def test_foreign_sources_neither_arrive_nor_take_room() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"], source_sessions=["mine"], queue_size=1)
    for source in ("other", "mine", "other", "other"):
        await router.emit("work", {}, source)
    assert (await anext(subscription)).source_session_id == "mine"
    assert subscription.dropped == 0


async def test_a_slow_subscriber_loses_the_oldest_and_the_loss_is_counted() -> None:
    router = EventRouter()
    slow, quick = router.subscribe(["*"], queue_size=2), router.subscribe(["*"], queue_size=100)
    for n in range(5):
        await router.emit("tick", {"n": n})
    assert [(await anext(slow)).data["n"], (await anext(slow)).data["n"]] == [3, 4]
    assert slow.dropped == 3
    assert [(await anext(quick)).data["n"] for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_slow_subscriber_may_ask_for_an_error_instead() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"], queue_size=1, overflow="error")
    await router.emit("tick", {})
    await router.emit("tick", {})
    with pytest.raises(SubscriberLagged, match="2 events behind"):
        await anext(subscription)


async def test_no_subscriber_can_change_what_another_one_sees() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"])
    payload = {"items": [1]}
    await router.emit("work", payload)
    payload["items"].append(2)
    assert (await anext(subscription)).data == {"items": [1]}


async def test_closing_ends_a_reader_that_waits_and_forgets_it() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"])
    assert router.subscriber_count == 1

    async def read_all() -> list[str]:
        return [event.name async for event in subscription]

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read_all())
        await router.emit("one", {})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        subscription.close()
    assert reader.result() == ["one"]
    assert router.subscriber_count == 0


async def test_waiting_for_an_event_returns_it_or_none() -> None:
    router = EventRouter()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(router.wait_for_event(["b"]))
        await asyncio.sleep(0)
        await router.emit("a", {})
        await router.emit("b", {"found": True})
    found = waiting.result()
    assert found is not None
    assert found.data == {"found": True}
    assert await router.wait_for_event(["never"], timeout=0) is None
    assert router.subscriber_count == 0


async def test_waiting_for_an_event_ends_with_an_error_when_the_router_is_closed() -> None:
    router = EventRouter()
    waiting = asyncio.ensure_future(router.wait_for_event(["b"]))
    await asyncio.sleep(0)
    router.close()
    with pytest.raises(RuntimeError, match="the router is closed"):
        await waiting


async def test_a_session_emitter_signs_with_its_session() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"])
    await router.create_session_emitter("session-7").emit("work", {})
    assert (await anext(subscription)).source_session_id == "session-7"


async def test_what_is_read_by_all_is_freed() -> None:
    router = EventRouter(history=1)
    subscription = router.subscribe(["*"], queue_size=None)
    first = ref(subscription._channel.log.tail)
    for _ in range(BLOCK + 1):
        await router.emit("tick", {})
    assert first() is not None
    for _ in range(BLOCK + 1):
        await anext(subscription)
    assert first() is None


# the cases of the specification, by name


async def test_emit_to_single_subscriber() -> None:
    router = EventRouter()
    subscription = router.subscribe(["test:event"])
    await router.emit("test:event", {"n": 1})
    assert (await anext(subscription)).data["n"] == 1


async def test_emit_to_multiple_subscribers() -> None:
    router = EventRouter()
    subscriptions = [router.subscribe(names) for names in (["a"], ["a"], ["*"], ["b", "a"])]
    await router.emit("a", {"n": 1})
    assert [(await anext(subscription)).data["n"] for subscription in subscriptions] == [1, 1, 1, 1]


async def test_wildcard_subscription() -> None:
    router = EventRouter()
    subscription = router.subscribe(["*"])
    for name in ("a", "b:c", ""):
        await router.emit(name, {})
    assert [(await anext(subscription)).name for _ in range(3)] == ["a", "b:c", ""]


async def test_source_session_filtering() -> None:
    router = EventRouter()
    subscription = router.subscribe(["a"], ["s-1"])
    for source in ("s-2", None, "s-1"):
        await router.emit("a", {}, source)
    assert (await anext(subscription)).source_session_id == "s-1"
    assert subscription.lag == 0


async def test_queue_full_handling(caplog: pytest.LogCaptureFixture) -> None:
    router = EventRouter()
    subscription = router.subscribe(["a"], queue_size=1)
    for _ in range(5):
        await router.emit("a", {})
    assert (subscription.lag, subscription.dropped) == (1, 4)
    assert "a subscriber to a is too slow: 1 events dropped" in caplog.text


async def test_subscriber_cleanup() -> None:
    router = EventRouter()
    async with router.subscribe(["a"]):
        assert router.subscriber_count == 1
    assert (router.subscriber_count, len(router._index), router._channels) == (0, 0, {})


async def test_session_emitter_binds_id() -> None:
    router = EventRouter()
    subscription = router.subscribe(["a"])
    await router.create_session_emitter("s-7", cause="e-1", depth=2).emit("a", {})
    event = await anext(subscription)
    assert (event.source_session_id, event.cause, event.depth) == ("s-7", "e-1", 2)


async def test_concurrent_emit_subscribe() -> None:
    router = EventRouter()

    async def read() -> list[int]:
        subscription = router.subscribe(["a"], queue_size=None)
        return [(await anext(subscription)).data["n"] for _ in range(200)]

    def emit_in_a_thread(first: int) -> None:
        for n in range(first, first + 50):
            router.emit_threadsafe("a", {"n": n}).result(30)

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read()) for _ in range(5)]
        await asyncio.sleep(0)
        for first in range(0, 200, 50):
            group.create_task(asyncio.to_thread(emit_in_a_thread, first))
    seen = [reader.result() for reader in readers]
    assert sorted(seen[0]) == list(range(200))
    assert all(each == seen[0] for each in seen)


async def test_event_timestamp_populated() -> None:
    before = datetime.now(UTC)
    event = await EventRouter().emit("a", {})
    assert before - timedelta(milliseconds=1) <= event.timestamp <= datetime.now(UTC)
