"""Sessions that go on with the history of another, and the runners that they run in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from amplifier_core import ForkRefused, SessionRecord, SpawnRequest, UnknownName, hookimpl
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation.sessions.history import text_of
from amplifier_foundation.spawning.runners import InProcessRunner

OpenBench = Callable[..., Any]


async def _histories(bench: Any, store: DurableStore) -> list[list[str]]:
    """Return what was said in each session, in the order of their events."""
    sessions = [each.session_id for each in await bench.deliveries()]
    return [[text_of(message) for message in await store.read(session_id)] for session_id in sessions]


async def test_each_run_remembers_the_one_before_and_shares_its_history(
    open_bench: OpenBench, store: DurableStore
) -> None:
    async with open_bench() as bench:
        await bench.start(fork_from="last", instruction_template="{n}")
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("completed", count=3)
        first, second, third = await _histories(bench, store)
        records = [await store.get(each.session_id) for each in await bench.deliveries()]
    assert first == ["0", "You said: 0"]
    assert second == [*first, "1", "You said: 1"]
    assert third == [*second, "2", "You said: 2"]
    assert [each.fork_of for each in records] == [None, records[0].session_id, records[1].session_id]
    assert [each.fork_at for each in records] == [None, 2, 4]
    assert [each.turn_count for each in records] == [1, 2, 3]


async def test_what_the_run_before_said_is_remembered_by_the_next_start(
    open_bench: OpenBench, store: DurableStore
) -> None:
    for n in range(2):
        async with open_bench() as bench:
            await bench.start(fork_from="last", instruction_template="{n}")
            bench.trigger.feed(n)
            await bench.until("completed")
    assert (await _histories(bench, store))[1] == ["0", "You said: 0", "1", "You said: 1"]


async def test_a_run_before_that_somebody_deleted_is_not_remembered(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        await bench.start(fork_from="last", instruction_template="{n}")
        bench.trigger.feed(0)
        await bench.until("completed")
        [done] = await bench.deliveries()
        await store.delete(done.session_id)
        bench.trigger.feed(1)
        await bench.until("completed", count=2)
        _, second = await bench.deliveries()
    assert [text_of(each) for each in await store.read(second.session_id)] == ["1", "You said: 1"]


async def test_a_queue_remembers_nothing_of_another(open_bench: OpenBench, store: DurableStore) -> None:
    async with open_bench() as bench:
        for name in ("a", "b"):
            await bench.start(name=name, fork_from="last", instruction_template="{source}")
            bench.trigger.feed(0)
            await bench.until("completed", count=1 if name == "a" else 2)
        assert [len(each) for each in await _histories(bench, store)] == [2, 2]


async def test_each_run_may_begin_with_one_session(open_bench: OpenBench, store: DurableStore) -> None:
    said = [{"role": "user", "content": "remember the milk"}, {"role": "assistant", "content": "I shall"}]
    await store.create(SessionRecord("source", turn_count=1))
    await store.append("source", said, at=0)
    async with open_bench() as bench:
        await bench.start(fork_from="source", instruction_template="{n}")
        for n in range(2):
            bench.trigger.feed(n)
        await bench.until("completed", count=2)
        histories = await _histories(bench, store)
        records = [await store.get(each.session_id) for each in await bench.deliveries()]
    assert histories == [["remember the milk", "I shall", str(n), f"You said: {n}"] for n in range(2)]
    assert [(each.fork_of, each.fork_at) for each in records] == [("source", 2)] * 2
    assert await store.read("source") == said


async def test_a_run_begins_without_the_prompt_that_its_source_answers(
    open_bench: OpenBench, store: DurableStore
) -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    await store.create(SessionRecord("source", turn_count=1, status="running"))
    await store.append("source", [*said, {"role": "user", "content": "pay the bill"}], at=0)
    async with open_bench() as bench:
        await bench.start(fork_from="source", instruction_template="{n}")
        bench.trigger.feed(0)
        await bench.until("completed")
        [run] = [await store.get(each.session_id) for each in await bench.deliveries()]
    assert await _histories(bench, store) == [["hi", "Hello", "0", "You said: 0"]]
    assert (run.fork_at, run.turn_count) == (2, 2)


async def test_a_session_to_begin_with_that_is_not_there_makes_a_dead_letter_at_once(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(fork_from="nobody")
        bench.trigger.feed(0)
        await bench.until("dead")
        [dead] = await bench.deliveries()
    assert "fork_from: no session 'nobody'. Name one of: amplifier session list --all, or last" in dead.reason
    assert dead.attempts == 1


async def test_sessions_run_in_the_runner_that_is_named(open_bench: OpenBench, plugins: Plugins) -> None:
    ran: list[SpawnRequest] = []

    class Noting(InProcessRunner):
        async def run(self, request: SpawnRequest, make_session: Any) -> str:
            ran.append(request)
            return await super().run(request, make_session)

    class Offers:
        @hookimpl
        def amplifier_register_runner(self, register: Any) -> None:
            register("runner-noting", Noting)

    plugins.register(Offers(), "noting")
    async with open_bench() as bench:
        await bench.start(runner="runner-noting")
        bench.trigger.feed(0)
        await bench.until("completed")
        [done] = await bench.deliveries()
    assert [each.session_id for each in ran] == [done.session_id]


async def test_a_runner_that_nobody_offers_is_refused_at_the_start(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        with pytest.raises(UnknownName, match="runner-nowhere"):
            await bench.start(runner="runner-nowhere")
        assert bench.manager.get_status() == {}


async def test_a_refused_fork_postpones_its_event_and_a_final_refusal_skips_it(
    open_bench: OpenBench, plugins: Plugins
) -> None:
    class Refusing:
        refusal: ForkRefused | None = None

        @hookimpl
        async def amplifier_before_fork(self, request: Any) -> None:
            if self.refusal is not None:
                raise self.refusal

    refusing = Refusing()
    plugins.register(refusing, "refusing")
    async with open_bench() as bench:
        await bench.start(fork_from="last", instruction_template="{n}", max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("completed")
        morning = bench.clock.now() + timedelta(minutes=8)
        refusing.refusal = ForkRefused("s", "it is night", not_before=morning)
        bench.trigger.feed(2)
        await bench.until("postponed")
        assert bench.told("postponed", "until") == [morning]
        refusing.refusal = ForkRefused("s", "never", final=True)
        await bench.clock.advance(8 * 60)
        await bench.until("refused")
        assert sorted(each.state for each in await bench.deliveries()) == ["done", "skipped"]
