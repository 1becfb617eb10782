"""Test a timer while somebody sets the clock, or the machine is suspended."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import WallClock, running, scheduled, timer

YEARS = 10 * 365.25 * 86_400
JUMPS = [sign * seconds for seconds in (1, 61, 86_400, YEARS) for sign in (1, -1)]


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("schedule", [{"interval": "1m"}, {"cron": "* * * * *"}], ids=["interval", "cron"])
async def test_a_clock_that_is_set_causes_no_storm_no_silence_and_no_tick_twice(
    schedule: dict[str, Any], jump: float
) -> None:
    clock = WallClock()
    async with running(timer(clock, **schedule)) as events:
        await clock.advance(120)
        clock.set_by(jump)
        await clock.advance(600)
    keys = {event.dedupe_key for event in events}
    assert 10 <= len(keys) <= len(events) <= 13
    assert [event.data["tick"] for event in events] == list(range(1, len(events) + 1))
    assert len(keys) == len(events) or -600 < jump < -1  # a minute that the wall shows again has its old key


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_short_interval_does_not_fire_for_the_time_that_was_jumped_over(jump: float) -> None:
    clock = WallClock()
    async with running(timer(clock, interval="100ms")) as events:
        await clock.advance(1)
        clock.set_by(jump)
        await clock.advance(1)
    assert 18 <= len(events) <= 22
    assert len({event.dedupe_key for event in events}) == len(events)


async def test_a_clock_set_forward_and_back_again_fires_every_day_once() -> None:
    clock = WallClock()
    async with running(timer(clock, cron="0 9 * * *")) as events:
        await clock.advance(10 * 3600)
        for _ in range(3):
            clock.set_by(YEARS)
            await clock.advance(60)
            clock.set_by(-YEARS)
        await clock.advance(24 * 3600)
    handled = {event.dedupe_key: event.data["scheduled"] for event in events}
    assert sorted(handled.values())[:2] == ["2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"]
    assert len(events) <= 5


async def test_a_clock_set_back_just_after_a_tick_does_not_fire_it_again() -> None:
    clock = WallClock()
    async with running(timer(clock, cron="0 9 * * *")) as events:
        await clock.advance(9 * 3600)
        clock.set_by(-2)
        await clock.advance(3600)
    assert scheduled(events) == ["09:00:00Z"]


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
async def test_a_tick_that_is_jumped_over_by_a_second_fires_whatever_is_caught_up(catch_up: str) -> None:
    clock = WallClock()
    async with running(timer(clock, cron="0 9 * * *", catch_up=catch_up)) as events:
        await clock.advance(9 * 3600 - 0.5)
        clock.set_by(1)
        await clock.advance(60)
    assert scheduled(events) == ["09:00:00Z"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["10:00:00Z"]),
        ({"catch_up": "skip"}, []),
        ({"catch_up": "all"}, ["08:00:00Z", "09:00:00Z", "10:00:00Z"]),
        ({"catch_up": "all", "max_age": "90m"}, ["09:00:00Z", "10:00:00Z"]),
        ({"max_age": "1m"}, []),
    ],
)
async def test_a_machine_that_was_suspended_catches_up_as_it_is_told(
    config: dict[str, Any], expected: list[str]
) -> None:
    clock = WallClock()
    async with running(timer(clock, cron="0 * * * *", **config)) as events:
        await clock.advance(7.5 * 3600)
        before = len(events)
        clock.set_by(3 * 3600 - 1200)
        await clock.advance(60)
    assert scheduled(events)[before:] == expected
