"""Test ticks that are delayed on purpose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from amplifier_core.testing.clock import START, VirtualClock

from .conftest import running, scheduled, timer

HOURLY = {"cron": "0 * * * *", "jitter": "10m"}


async def test_every_tick_is_delayed_within_the_jitter_and_keeps_the_key_of_its_due_time() -> None:
    clock = VirtualClock()
    async with running(timer(clock, **HOURLY)) as events, running(timer(VirtualClock(), cron="0 * * * *")):
        await clock.advance(24 * 3600)
    delays = [(event.timestamp - datetime.fromisoformat(event.data["scheduled"])) for event in events]
    assert all(timedelta() <= delay < timedelta(minutes=10) for delay in delays)
    assert len(set(delays)) == len(delays) == 23
    assert [event.dedupe_key for event in events] == [f"tests/timer#0 {event.data['scheduled']}" for event in events]


async def test_a_restart_between_due_time_and_fire_neither_loses_nor_repeats_the_tick() -> None:
    [fires] = islice(timer(VirtualClock(), **HOURLY).upcoming(START), 1)
    assert fires.note == "due 01:00:00, jitter"
    clock = VirtualClock(datetime(2026, 1, 1, 1, tzinfo=UTC))
    state = {"last": "2026-01-01T00:00:00Z", "tick": 4}
    async with running(timer(clock, state, **HOURLY)) as events:
        await clock.advance((fires.at - clock.now()).total_seconds() - 1)
        assert events == []
        await clock.advance(2)
        assert scheduled(events) == ["01:00:00Z"]
    assert events[0].state is not None
    async with running(timer(clock, events[0].state, **HOURLY)) as again:
        await clock.advance(1800)
    assert again == []


async def test_two_timers_are_not_delayed_alike() -> None:
    one, other = (timer(VirtualClock(), name=name, **HOURLY) for name in ("a", "b"))
    assert [each.at for each in islice(one.upcoming(START), 5)] != [
        each.at for each in islice(other.upcoming(START), 5)
    ]


async def test_no_tick_is_delayed_beyond_the_next_one() -> None:
    clock = VirtualClock()
    trigger = timer(clock, interval=60, jitter="1h")
    planned = [each.at for each in islice(trigger.upcoming(START), 20)]
    async with running(trigger) as events:
        await clock.advance(21 * 60)
    assert [event.timestamp for event in events][:20] == planned
    assert scheduled(events)[:3] == ["00:01:00Z", "00:02:00Z", "00:03:00Z"]
