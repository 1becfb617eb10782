"""Test the timer on a virtual clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from amplifier_core.plugins import load_plugins
from amplifier_core.testing.clock import VirtualClock
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerSource, TriggerType
from amplifier_trigger_timer import TimerTrigger

from .conftest import running, scheduled, timer

pytestmark = pytest.mark.slow


async def test_the_contract_of_a_trigger() -> None:
    clock = VirtualClock()
    context = TriggerContext("tests/timer#0", clock=clock)
    events = await check_trigger(
        TimerTrigger, {"interval_seconds": 60}, provoke=lambda: clock.advance(60), context=context
    )
    assert [event.data["tick"] for event in events] == [1, 2]


def test_the_plugin_registers_the_timer() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-timer"})
    assert plugins.triggers.get("trigger-timer") is TimerTrigger
    assert isinstance(TimerTrigger(), TriggerSource)


async def test_it_fires_at_its_interval_and_counts() -> None:
    clock = VirtualClock()
    async with running(timer(clock, interval_seconds=60)) as events:
        await clock.advance(59)
        assert events == []
        await clock.advance(121)
    assert scheduled(events) == ["00:01:00Z", "00:02:00Z", "00:03:00Z"]
    assert (events[0].type, events[0].source) == (TriggerType.TIMER, "trigger-timer")
    assert events[0].data == {"tick": 1, "interval": 60.0, "scheduled": "2026-01-01T00:01:00Z"}
    assert [event.data["tick"] for event in events] == [1, 2, 3]


async def test_a_slow_handler_shifts_no_deadline_and_loses_no_tick() -> None:
    clock = VirtualClock()
    trigger = timer(clock, interval_seconds=10)
    stream = aiter(trigger.watch())
    first = asyncio.ensure_future(anext(stream))
    await clock.advance(10)
    await first
    await clock.advance(25)  # the handler works across two deadlines
    late = [await anext(stream), await anext(stream)]
    following = asyncio.ensure_future(anext(stream))
    await clock.advance(5)
    assert scheduled([await first, *late, await following]) == ["00:00:10Z", "00:00:20Z", "00:00:30Z", "00:00:40Z"]
    await trigger.stop()


async def test_a_thousand_short_ticks_do_not_drift() -> None:
    clock = VirtualClock()
    trigger = timer(clock, interval_seconds=0.01)
    ticks: list[TriggerEvent] = []
    async with asyncio.TaskGroup() as tasks:
        driving = tasks.create_task(clock.advance(11))
        async for event in trigger.watch():
            await clock.sleep(0.005)
            ticks.append(event)
            if len(ticks) == 1000:
                break
        await driving
    assert ticks[-1].data["scheduled"] == "2026-01-01T00:00:10Z"
    assert ticks[-1].timestamp == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


async def test_immediate_fires_at_start_and_counts_from_there() -> None:
    clock = VirtualClock()
    async with running(timer(clock, interval_seconds=60, immediate=True)) as events:
        await clock.advance(60)
    assert scheduled(events) == ["00:00:00Z", "00:01:00Z"]


async def test_a_tick_missed_while_stopped_fires_once_at_start_and_the_phase_is_kept() -> None:
    clock = VirtualClock()
    await clock.advance(330)
    state = {"last": "2026-01-01T00:01:00Z", "tick": 1}
    async with running(timer(clock, state, interval_seconds=60)) as events:
        await clock.advance(30)
    assert scheduled(events) == ["00:05:00Z", "00:06:00Z"]
    assert events[-1].state == {"last": "2026-01-01T00:06:00Z", "tick": 3}


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", ["00:04:00Z"]), ("all", ["00:02:00Z", "00:03:00Z", "00:04:00Z"]), ("latest", ["00:03:00Z", "00:04:00Z"])],
)
async def test_catch_up_says_what_of_the_missed_ticks_fires(catch_up: str, expected: list[str]) -> None:
    clock = VirtualClock()
    await clock.advance(181)
    state = {"last": "2026-01-01T00:01:00Z", "tick": 1}
    async with running(timer(clock, state, interval_seconds=60, catch_up=catch_up)) as events:
        await clock.advance(59)
    assert scheduled(events) == expected


@pytest.mark.parametrize("schedule", [{"interval_seconds": 0.01}, {"cron": "* * * * *"}])
async def test_catching_up_all_is_bounded_and_says_so(
    schedule: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    state = {"last": "2025-01-01T00:00:00Z", "tick": 0}
    with caplog.at_level(logging.WARNING, logger="amplifier_trigger_timer"):
        async with running(timer(clock, state, catch_up="all", **schedule)) as events:
            await clock.advance(0)
    assert len(events) == 1000
    assert events[-1].data["scheduled"] == "2026-01-01T00:00:00Z"
    assert caplog.messages == ["tests/timer#0 missed more than 1000 ticks; the newest fire"]


async def test_a_first_tick_that_is_missed_is_caught_up() -> None:
    clock, saved = VirtualClock(), list[Mapping[str, Any]]()

    async def save(state: Mapping[str, Any]) -> None:
        saved.append(state)

    trigger = TimerTrigger()
    trigger.bind(TriggerContext("tests/timer#0", clock=clock, saver=save))
    trigger.configure({"cron": "0 9 * * *"})
    async with running(trigger):
        assert saved == [{"last": "2026-01-01T00:00:00Z", "tick": 0}]
    await clock.advance(12 * 3600)
    async with running(timer(clock, saved[0], cron="0 9 * * *")) as events:
        await clock.advance(0)
    assert scheduled(events) == ["09:00:00Z"]


async def test_stop_interrupts_the_sleep() -> None:
    trigger = TimerTrigger()  # on the machine's own clock: nobody moves it
    trigger.configure({"interval_seconds": 86_400})
    async with running(trigger) as events:
        pass
    assert events == []


async def test_a_timer_stopped_before_it_is_watched_yields_nothing() -> None:
    trigger = timer(VirtualClock(), interval_seconds=1, immediate=True)
    await trigger.stop()
    assert [event async for event in trigger.watch()] == []


async def test_a_clock_that_was_set_back_delays_an_interval_by_one_period_at_most() -> None:
    clock = VirtualClock()
    state = {"last": "2026-01-02T00:00:00Z", "tick": 7}
    async with running(timer(clock, state, interval_seconds=60)) as events:
        await clock.advance(60)
    assert scheduled(events) == ["00:01:00Z"]


class Suspended(VirtualClock):
    """A machine that is suspended in the middle of its first long sleep."""

    asleep = False

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if not self.asleep:
            self.asleep = True
            self._elapsed += 600


async def test_ticks_missed_by_a_suspended_machine_are_caught_up_as_the_latest() -> None:
    clock = Suspended()
    async with running(timer(clock, interval_seconds=60)) as events:
        await clock.advance(60)
        await clock.advance(660)
    assert scheduled(events)[0] == "00:11:00Z"


async def test_cron_fires_on_the_clock_of_its_zone() -> None:
    clock = VirtualClock(datetime(2026, 1, 2, tzinfo=UTC))  # a Friday
    async with running(timer(clock, cron="30 9 * * mon-fri", timezone="Asia/Tokyo")) as events:
        await clock.advance(25 * 3600)
    assert [event.data["scheduled"] for event in events] == ["2026-01-02T00:30:00Z"]
    assert events[0].data["cron"] == "30 9 * * mon-fri"


async def test_two_timers_of_one_session_never_share_a_dedupe_key() -> None:
    clock = VirtualClock()
    other = TimerTrigger()
    other.bind(TriggerContext("tests/timer#1", clock=clock))
    other.configure({"interval_seconds": 60})
    async with running(timer(clock, interval_seconds=60)) as events, running(other) as others:
        await clock.advance(60)
    assert scheduled(events) == scheduled(others)
    assert events[0].dedupe_key != others[0].dedupe_key
