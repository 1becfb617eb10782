"""Test a timer's forecast, and the timer that fires once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from amplifier_core.testing.clock import START, VirtualClock
from amplifier_core.triggers import ScheduledSource
from amplifier_trigger_timer import TimerTrigger

from .conftest import running, timer

pytestmark = pytest.mark.slow

SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
BERLIN = {"timezone": "Europe/Berlin"}
REPEATED = "clocks go back: 02:30 is in the repeated hour"


def coming(after: datetime, count: int, **config: Any) -> list[tuple[str, str]]:
    fires = islice(timer(VirtualClock(), **config).upcoming(after), count)
    return [(f"{each.at:%d. %H:%M %z}", each.note) for each in fires]


def test_the_timer_knows_its_future() -> None:
    assert isinstance(TimerTrigger(), ScheduledSource)


def test_a_time_that_does_not_exist_is_noted() -> None:
    assert coming(SPRING, 2, cron="30 2 * * *", **BERLIN) == [
        ("29. 03:00 +0200", "clocks go forward: 02:30 does not exist"),
        ("30. 02:30 +0200", ""),
    ]


def test_a_time_that_comes_twice_is_noted_and_fires_once() -> None:
    assert coming(AUTUMN, 2, cron="30 2 * * *", **BERLIN) == [
        ("25. 02:30 +0200", f"{REPEATED}: fires once"),
        ("26. 02:30 +0100", ""),
    ]


def test_a_job_that_follows_the_wall_is_noted_both_times() -> None:
    assert coming(AUTUMN, 2, cron="30 */2 25 * *", **BERLIN)[1:] == [("25. 02:30 +0200", f"{REPEATED}, the first time")]
    assert coming(AUTUMN, 3, cron="30 */2 25 * *", **BERLIN)[2:] == [
        ("25. 02:30 +0100", f"{REPEATED}, the second time")
    ]


def test_an_interval_keeps_the_phase_of_its_state() -> None:
    trigger = timer(VirtualClock(), {"last": "2026-01-01T00:00:07Z", "tick": 3}, interval="1m")
    assert [each.at.second for each in islice(trigger.upcoming(START + timedelta(hours=5)), 3)] == [7, 7, 7]
    [first] = islice(trigger.upcoming(START), 1)  # before its last tick: the clock was set back
    assert first.at == START + timedelta(minutes=1)


async def test_what_comes_is_what_fires() -> None:
    clock = VirtualClock()
    trigger = timer(clock, cron="*/7 */3 * * *", jitter="90s", **BERLIN)
    planned = [each.at for each in islice(trigger.upcoming(START), 12)]
    async with running(trigger) as events:
        await clock.advance(8 * 3600)
    assert [event.timestamp for event in events][:12] == planned


def test_an_interval_ends_with_the_calendar() -> None:
    late = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert len(list(timer(VirtualClock(), interval=20).upcoming(late))) == 2


@pytest.mark.parametrize(
    ("config", "due"),
    [
        ({"at": "2026-01-01T01:00:00+01:00"}, "01. 01:00 +0100"),
        ({"at": "2026-03-29T02:30", **BERLIN}, "29. 03:00 +0200"),
        ({"at": "2026-10-25T02:30", **BERLIN}, "25. 02:30 +0200"),
    ],
)
def test_a_timer_of_one_time_reads_it_as_cron_would(config: dict[str, Any], due: str) -> None:
    [(shown, _)] = coming(START - timedelta(days=1), 9, **config)
    assert shown == due


async def test_a_timer_of_one_time_fires_once_and_goes_on_waiting() -> None:
    clock = VirtualClock()
    async with running(timer(clock, at="2026-01-01T02:00:00+01:00")) as events:
        await clock.advance(3 * 3600)
        assert clock.sleeping == 1
    assert [event.data for event in events] == [
        {"tick": 1, "at": "2026-01-01T02:00:00+01:00", "scheduled": "2026-01-01T01:00:00Z"}
    ]
    assert events[0].state is not None
    again = timer(clock, events[0].state, at="2026-01-01T02:00:00+01:00")
    assert list(again.upcoming(START)) == []
    async with running(again) as repeated:
        await clock.advance(3600)
    assert repeated == []


@pytest.mark.parametrize(("config", "fired"), [({}, 1), ({"catch_up": "skip"}, 0), ({"max_age": "30m"}, 0)])
async def test_a_time_that_passed_while_nothing_ran_is_caught_up(config: dict[str, Any], fired: int) -> None:
    state = {"last": "2025-12-31T20:00:00Z", "tick": 0}
    async with running(timer(VirtualClock(), state, at="2025-12-31T23:00Z", **config)) as events:
        pass
    assert len(events) == fired


async def test_a_time_that_was_over_at_the_very_first_start_does_not_fire_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="amplifier_trigger_timer"):
        async with running(timer(VirtualClock(), at="2025-12-31T23:00Z")) as events:
            pass
    assert events == []
    assert caplog.messages == ["tests/timer#0: its time is over; it does not fire"]
