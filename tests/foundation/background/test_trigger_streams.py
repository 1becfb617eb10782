"""The stream of a trigger is closed, also one with a group of tasks in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.cancellation import as_failure
from amplifier_core.errors import PluginError
from amplifier_foundation.background.trigger_making import open_stream

from .bench import FedTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    OpenBench = Callable[..., Any]


class Grouped:
    """A trigger with a task beside its events."""

    def __init__(self) -> None:
        self.closed = False

    async def watch(self) -> AsyncIterator[Any]:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                while True:
                    yield 1
        finally:
            self.closed = True


async def test_a_group_of_tasks_in_a_generator_ends_with_it() -> None:
    trigger = Grouped()
    async with open_stream(cast("Any", trigger), "grouped") as stream:
        assert await anext(stream) == 1
    assert trigger.closed


async def test_the_error_of_its_reader_is_the_one_that_is_raised() -> None:
    trigger = Grouped()
    with pytest.raises(ValueError, match="no such event"):
        async with open_stream(cast("Any", trigger), "grouped") as stream:
            await anext(stream)
            raise ValueError("no such event")


async def test_the_exit_that_closes_a_generator_of_a_module_is_the_module_s_failure_in_a_group() -> None:
    stream = Grouped().watch()
    await anext(stream)
    with pytest.raises(BaseExceptionGroup) as raised:
        await cast("Any", stream).aclose()
    failure = as_failure(raised.value)
    assert isinstance(failure, ExceptionGroup)
    assert [type(each) for each in failure.exceptions] == [PluginError]


async def test_a_background_session_with_such_a_trigger_is_stopped_while_an_event_waits_for_a_place(
    open_bench: OpenBench, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = FedTrigger.watch

    async def grouped(self: FedTrigger) -> AsyncIterator[Any]:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
            async for event in watch(self):
                yield event

    monkeypatch.setattr(FedTrigger, "watch", grouped)
    async with open_bench(providers=held) as bench:
        session_id = await bench.start(max_waiting=1)
        for n in range(5):
            bench.trigger.feed(n)
        await bench.holds(lambda: set(bench.statuses().values()) == {"degraded"})  # an event waits for a place
        assert await bench.manager.stop(session_id, grace=0)
        assert "trigger_failed" not in bench.kinds()
