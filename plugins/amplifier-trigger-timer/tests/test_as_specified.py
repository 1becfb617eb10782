"""Test the timer by the cases of its specification, under their names."""

from __future__ import annotations

from itertools import islice

from amplifier_core.testing.clock import START, VirtualClock

from .conftest import running, timer


def test_timer_configure() -> None:
    first, second = islice(timer(VirtualClock(), interval_seconds=5).upcoming(START), 2)
    assert (first.at - START).total_seconds() == (second.at - first.at).total_seconds() == 5


async def test_timer_emits_on_interval() -> None:
    clock = VirtualClock()
    async with running(timer(clock, interval_seconds=1)) as events:
        await clock.advance(3)
    assert [event.timestamp.second for event in events] == [1, 2, 3]


async def test_timer_tick_increments() -> None:
    clock = VirtualClock()
    async with running(timer(clock, interval_seconds=1)) as events:
        await clock.advance(3)
    assert [(event.data["tick"], event.data["interval"]) for event in events] == [(1, 1.0), (2, 1.0), (3, 1.0)]


async def test_timer_stop() -> None:
    clock = VirtualClock()
    async with running(timer(clock, interval_seconds=1)) as events:
        await clock.advance(1)
    await clock.advance(5)
    assert len(events) == 1
    assert clock.sleeping == 0
