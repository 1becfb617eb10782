"""Which events are accepted, which wait for which, and in what order they are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.storage import Admission, DurableStore

from .bench import FedTrigger

OpenBench = Callable[..., Any]
Held = list[dict[str, Any]]


async def test_queued_events_are_handled_one_after_the_other_in_their_order(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(mode="queued")
        for n in range(4):
            bench.trigger.feed(n)
        await bench.until("accepted", count=4)
        await bench.until("session")
        bench.held().go.set()
        await bench.until("completed", count=4)
        assert (bench.handled(), bench.held().most) == ([0, 1, 2, 3], 1)


async def test_queued_events_of_one_key_wait_for_each_other_and_others_do_not(
    open_bench: OpenBench, held: Held
) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(mode="queued", key="{file_path}", pool_size=4)
        for n, name in enumerate(["a", "a", "b", "a"]):
            bench.trigger.feed(n, file_path=name)
        await bench.until("accepted", count=4)
        await bench.holds(lambda: len(bench.held().asked) == 2 if bench.told("session", "session") else False)
        assert sorted(bench.handled()) == [0, 2]
        bench.held().go.set()
        await bench.until("completed", count=4)
        assert [n for n in bench.handled() if n != 2] == [0, 1, 3]


async def test_parallel_events_wait_for_nothing_but_a_worker(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(mode="parallel", pool_size=4)
        for n in range(4):
            bench.trigger.feed(n, file_path="a")
        await bench.until("session", count=4)
        await bench.holds(lambda: bench.held().together == 4)
        bench.held().go.set()
        await bench.until("completed", count=4)


async def test_single_events_skip_what_comes_meanwhile(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(mode="single", pool_size=4)
        bench.trigger.feed(0)
        await bench.until("session")
        bench.trigger.feed(1)
        await bench.until("refused")
        bench.held().go.set()
        await bench.until("completed")
        bench.trigger.feed(2)
        await bench.until("completed", count=2)
        assert await bench.states() == ["done", "skipped", "done"]
        assert bench.told("refused", "reason") == ["an earlier delivery with the same key is unfinished"]


async def test_restart_events_take_the_place_of_the_one_at_work(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(mode="restart", key="{file_path}", pool_size=4)
        bench.trigger.feed(0, file_path="a")
        bench.trigger.feed(1, file_path="b")
        await bench.until("session", count=2)
        await bench.holds(lambda: bench.held().together == 2)
        newer = bench.trigger.feed(2, file_path="a")
        await bench.until("session", count=3)
        await bench.holds(lambda: bench.held().together == 2)
        bench.held().go.set()
        await bench.until("completed", count=2)
        cut, other, done = await bench.deliveries()
        assert [each.state for each in (cut, other, done)] == ["skipped", "done", "done"]
        assert cut.reason == f"replaced by event {newer.event_id}"
        assert (await bench.store.get(cut.session_id)).status == "cancelled"


async def test_debounced_events_are_one_when_they_have_settled(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(debounce={"period": 2})
        for n in range(3):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n + 1)
            await bench.clock.advance(1)
        assert bench.handled() == []
        await bench.until("completed", step=0.5)
        assert await bench.states() == ["skipped", "skipped", "done"]


async def test_what_comes_due_is_begun_then_however_seldom_a_worker_looks(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        bench.manager._engine.poll = 1e6
        await bench.start(debounce={"period": 2})
        bench.trigger.feed(0)
        await bench.until("accepted")
        await bench.clock.advance(1.9)
        assert bench.handled() == []
        await bench.clock.advance(0.2)
        await bench.until("completed")


async def test_debounced_events_of_different_keys_settle_apart(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(debounce={"period": 2, "key": "{file_path}"})
        for n, name in enumerate(["a", "b", "a"]):
            bench.trigger.feed(n, file_path=name)
        await bench.until("accepted", count=3)
        await bench.until("completed", count=2, step=0.5)
        assert await bench.numbers() == [1, 2]


async def test_a_debounce_does_not_wait_longer_than_its_timeout(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(debounce={"period": 2, "timeout": 3})
        began = bench.clock.now()
        for n in range(3):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n + 1)
            await bench.clock.advance(1)
        last = (await bench.deliveries())[-1]
        assert (last.available_at - began).total_seconds() == 3
        await bench.until("completed", step=0.5)
        assert await bench.numbers() == [2]


async def test_a_throttle_begins_so_many_in_a_period_however_large_the_pool(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(throttle={"limit": 2, "period": 60}, pool_size=8)
        for n in range(5):
            bench.trigger.feed(n)
        await bench.until("accepted", count=5)
        await bench.until("completed", count=2)
        await bench.until("completed", count=5, step=1)
        claimed = sorted(delivery.updated for delivery in bench.told("started", "delivery"))
        assert (claimed[1] - claimed[0]).total_seconds() < 60
        assert all((third - first).total_seconds() >= 60 for first, third in zip(claimed, claimed[2:], strict=False))


async def test_the_higher_priority_goes_first_and_equals_in_their_order(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start(priority=7)
        bench.trigger.feed(0)
        await bench.until("session")
        project, event = bench.manager._project, bench.trigger.feed(1)
        await bench.until("accepted", count=2)
        urgent = type(event)(event.type, event.source, data={"n": 2})
        await bench.store.enqueue(
            project, "family/queue", "t", urgent, admission=Admission(priority=8), now=bench.clock.now()
        )
        bench.held().go.set()
        await bench.until("completed", count=3)
        assert bench.handled() == [0, 2, 1]
        assert [each.priority for each in await bench.deliveries()] == [7, 7, 8]


async def test_only_events_for_which_the_condition_holds_are_handled(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(**{"if": "data.n > 1 and file_path != 'todo.md'"})
        for n, path in enumerate(["a", "a", "a", "todo.md"]):
            bench.trigger.feed(n, file_path=path)
        await bench.until("completed")
        await bench.until("refused", count=3)
        assert await bench.states() == ["refused", "refused", "done", "refused"]
        assert set(bench.told("refused", "reason")) == {"its 'if' does not hold: data.n > 1 and file_path != 'todo.md'"}


async def test_an_event_that_another_process_stored_is_found(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        event = TriggerEvent(TriggerType.MANUAL, "trigger-manual")
        await bench.store.enqueue(bench.manager._project, "family/queue", "t", event, now=bench.clock.now())
        await bench.until("completed", step=0.5)


async def test_a_trigger_is_not_asked_for_more_before_its_event_is_stored(
    open_bench: OpenBench, store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, enqueue = asyncio.Event(), store.enqueue

    async def slow(*event: Any, **given: Any) -> Any:
        await stored.wait()
        return await enqueue(*event, **given)

    monkeypatch.setattr(store, "enqueue", slow)
    async with open_bench() as bench:
        await bench.start()
        for n in range(3):
            bench.trigger.feed(n)
        await bench.holds(lambda: bench.trigger.queue.qsize() == 2)
        await bench.clock.advance(60)
        assert bench.trigger.queue.qsize() == 2
        stored.set()
        await bench.until("completed", count=3)


# what waited while nothing ran


async def _waited(open_bench: OpenBench, **fields: Any) -> Any:
    """Accept events 0 to 3 on queue `queue` while none of them is handled, and start it as `fields` say."""
    async with open_bench() as bench:
        session_id = await bench.start(throttle={"limit": 1, "period": 60}, **fields)
        for n in range(5):
            bench.trigger.feed(n, file_path="ab"[n % 2])
        await bench.until("accepted", count=5)
        await bench.until("completed")
        await bench.manager.stop(session_id)
        assert await bench.numbers("pending") == [1, 2, 3, 4]
    return open_bench()


async def test_all_that_waited_is_handled(open_bench: OpenBench) -> None:
    async with await _waited(open_bench) as bench:
        await bench.start(catch_up="all")
        await bench.until("completed", count=4)
        assert await bench.states() == ["done"] * 5


async def test_the_latest_of_each_key_that_waited_is_handled(open_bench: OpenBench) -> None:
    async with await _waited(open_bench, key="{file_path}") as bench:
        await bench.start(catch_up="latest", key="{file_path}")
        await bench.until("completed", count=2)
        assert await bench.numbers() == [0, 3, 4]
        skipped = [each.reason for each in await bench.deliveries() if each.state == "skipped"]
        assert skipped == ["it waited while nothing ran (catch_up: latest)"] * 2


async def test_nothing_that_waited_is_handled_but_what_was_begun(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        session_id = await bench.start()
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("accepted", count=3)
        await bench.until("session")
        assert await bench.manager.stop(session_id, grace=0)
    async with open_bench() as bench:
        await bench.start(catch_up="skip")
        await bench.until("completed")
        bench.trigger.feed(3)
        await bench.until("completed", count=2)
        assert await bench.numbers() == [0, 3]
        assert await bench.numbers("skipped") == [1, 2]


async def test_queues_do_not_wait_for_each_other(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start()
        slow = bench.trigger
        await bench.start(name="other")
        slow.feed(0)
        FedTrigger.made[-1].feed(1)
        await bench.until("session", count=2)
        await bench.holds(lambda: bench.held().together == 2)
        bench.held().go.set()
        await bench.until("completed", count=2)
