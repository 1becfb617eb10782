"""Test due times across changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from amplifier_trigger_timer.cron import Cron
from amplifier_trigger_timer.schedule import Interval

NEW_YORK = "America/New_York"
SPRING = datetime(2026, 3, 7, 12, tzinfo=UTC)
"""The day before clocks are set from 2:00 to 3:00 in New York."""
AUTUMN = datetime(2026, 10, 31, 12, tzinfo=UTC)
"""The day before clocks are set from 2:00 to 1:00."""


def due_after(schedule: Cron | Interval, moment: datetime) -> datetime:
    due = schedule.next_after(moment)
    assert due is not None
    return due


def walls(expression: str, start: datetime, days: int, zone: str = NEW_YORK) -> list[str]:
    """Return the times on the wall, with their offsets, at which the expression is due."""
    dues: list[datetime] = []
    schedule, moment = Cron(expression, zone), start
    while (moment := due_after(schedule, moment)) < start + timedelta(days=days):
        dues.append(moment)
    assert schedule.list_missed(dues[0], dues[-1], 10_000) == dues  # looking back finds the same
    return [due.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M %z") for due in dues]


def test_a_fixed_time_in_the_gap_fires_once_at_its_end() -> None:
    assert walls("30 2 * * *", SPRING, 2) == ["03-08 03:00 -0400", "03-09 02:30 -0400"]


def test_a_fixed_time_that_comes_twice_fires_the_first_time() -> None:
    assert walls("30 1 * * *", AUTUMN, 2) == ["11-01 01:30 -0400", "11-02 01:30 -0500"]


def test_a_fixed_time_fires_exactly_once_on_every_day_of_a_year() -> None:
    for hour in range(4):
        days = [wall[:5] for wall in walls(f"30 {hour} * * *", datetime(2026, 1, 1, 5, tzinfo=UTC), 364)]
        assert len(days) == len(set(days)) == 364


def test_a_job_of_every_half_hour_fires_in_both_of_two_equal_hours() -> None:
    assert walls("*/30 * * * *", datetime(2026, 11, 1, 4, 45, tzinfo=UTC), 1)[:5] == [
        "11-01 01:00 -0400",
        "11-01 01:30 -0400",
        "11-01 01:00 -0500",
        "11-01 01:30 -0500",
        "11-01 02:00 -0500",
    ]


def test_a_job_of_every_second_hour_leaves_out_an_hour_that_does_not_exist() -> None:
    assert walls("0 */2 * * *", datetime(2026, 3, 8, 4, tzinfo=UTC), 1)[:3] == [
        "03-08 00:00 -0500",
        "03-08 04:00 -0400",
        "03-08 06:00 -0400",
    ]


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_every_minute_is_due_whenever_the_wall_shows_it(start: datetime) -> None:
    minutes = [start + timedelta(minutes=minute) for minute in range(1, 2880)]
    expected = [moment for moment in minutes if moment.astimezone(ZoneInfo(NEW_YORK)).minute % 7 == 0]
    schedule = Cron("*/7 * * * *", NEW_YORK)
    assert schedule.list_missed(expected[0], minutes[-1], 10_000) == expected


def test_a_zone_that_moves_by_half_an_hour_repeats_half_an_hour() -> None:
    lord_howe = walls("*/15 * * * *", datetime(2026, 4, 4, 14, 20, tzinfo=UTC), 1, "Australia/Lord_Howe")
    assert [wall[6:11] for wall in lord_howe[:5]] == ["01:30", "01:45", "01:30", "01:45", "02:00"]


def test_a_day_that_a_zone_leaves_out_fires_at_its_end() -> None:
    apia = walls("0 9 * * *", datetime(2011, 12, 29, 20, tzinfo=UTC), 3, "Pacific/Apia")
    assert apia[:2] == ["12-31 00:00 +1400", "12-31 09:00 +1400"]


def test_what_was_missed_is_the_newest_only_up_to_the_limit() -> None:
    first, now = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    newest = [datetime(2025, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    assert Cron("* * * * *").list_missed(first, now, 2) == newest
    assert Interval(60).list_missed(first, now, 2) == newest
    assert Cron("0 0 29 2 *").list_missed(datetime(2024, 2, 29, tzinfo=UTC), now, 9) == [
        datetime(2024, 2, 29, tzinfo=UTC)
    ]


@pytest.mark.parametrize("schedule", [Cron("* * * * *"), Interval(60)])
def test_nothing_is_missed_before_the_first_due_time(schedule: Cron | Interval) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert schedule.list_missed(due_after(schedule, now), now, 5) == []
