"""Test the configuration of a timer, and its errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from amplifier_core.durations import seconds_of
from amplifier_core.errors import TriggerConfigError
from amplifier_trigger_timer import TimerTrigger

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def gap(**config: Any) -> timedelta:
    """Return the time between the first two fires."""
    trigger = TimerTrigger()
    trigger.configure(config)
    first, second = islice(trigger.upcoming(NOW), 2)
    return second.at - first.at


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("15m", 900),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("1w", 604_800),
    ],
)
def test_a_duration_is_seconds_or_text(written: Any, seconds: float) -> None:
    assert seconds_of(written) == seconds
    assert gap(interval=written) == timedelta(seconds=seconds)


def test_a_timer_without_a_schedule_fires_every_sixty_seconds() -> None:
    assert gap() == gap(immediate=True) == timedelta(seconds=60)


def test_interval_seconds_says_the_same_as_interval() -> None:
    assert gap(interval_seconds=90) == gap(interval="1m30s") == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({"interval_seconds": 60, "cron": "* * * * *"}, "cron", "give one of interval, interval_seconds, cron and at"),
        ({"interval": 60, "interval_seconds": 60}, "interval_seconds", "this has interval and interval_seconds"),
        ({"interval_seconds": 0}, "interval_seconds", "at least"),
        ({"interval_seconds": -1}, "interval_seconds", "at least"),
        ({"interval_seconds": "60"}, "interval_seconds", "number"),
        ({"interval_seconds": True}, "interval_seconds", "number"),
        ({"interval_seconds": float("nan")}, "interval_seconds", "finite"),
        ({"interval_seconds": 1e300}, "interval_seconds", "at most"),
        ({"interval": 0}, "interval", "at least"),
        ({"interval": "0s"}, "interval", "at least"),
        ({"interval": -5}, "interval", "zero or more"),
        ({"interval": float("nan")}, "interval", "zero or more, and finite"),
        ({"interval": 10**400}, "interval", "finite"),
        ({"at": "0001-01-01T00:00+14:00"}, "at", "is out of range; give a year from 1970 to 9000"),
        ({"interval": True}, "interval", "give seconds, or text such as '15m', '1h30m' or '500ms'"),
        ({"interval": "15 months"}, "interval", "'15 months' is not a duration"),
        ({"interval": "60"}, "interval", "'60' is not a duration"),
        ({"interval": "9" * 400 + "s"}, "interval", "finite"),
        ({"interval": "600w"}, "interval", "at most"),
        ({"interval_secs": 60}, "interval_secs", "did you mean 'interval_seconds'?"),
        ({"interval_seconds": 60, "zzz": 1}, "zzz", "known are interval, interval_seconds, cron,"),
        ({"interval_seconds": 60, "timezone": "UTC"}, "timezone", "it goes with cron or at"),
        ({"cron": "* * * *"}, "cron", "it needs minute, hour, day of month, month, day of week"),
        ({"cron": ""}, "cron", "it needs minute, hour"),
        ({"cron": "@daily"}, "cron", "it needs minute, hour"),
        ({"cron": "0 0 * * * *"}, "cron", "it needs minute, hour"),
        ({"cron": 5}, "cron", "text"),
        ({"cron": "61 * * * *"}, "cron", "minute must be 0-59, got 61"),
        ({"cron": "0 25 * * *"}, "cron", "hour must be 0-23, got 25"),
        ({"cron": "0 1-25 * * *"}, "cron", "hour must be 0-23, got 25"),
        ({"cron": "0 *-5 * * *"}, "cron", "hour must be 0-23, got '*-5'"),
        ({"cron": "0 0 32 * *"}, "cron", "day of month must be 1-31 or L, got 32"),
        ({"cron": "0 0 15w * *"}, "cron", "day of month must be 1-31 or L, got 15w"),
        ({"cron": "0 0 1,,2 * *"}, "cron", "day of month must be 1-31 or L, got ''"),
        ({"cron": "0 0 1 smarch *"}, "cron", "month must be 1-12 or jan-dec, got smarch"),
        ({"cron": "* * * * someday"}, "cron", "day of week must be 0-7 or sun-sat, got someday"),
        ({"cron": "* * * * ?"}, "cron", "day of week must be 0-7 or sun-sat, got '?'"),
        ({"cron": "R * * * *"}, "cron", "minute must be 0-59, got r"),
        ({"cron": "* 22-2 * * *"}, "cron", "hour '22-2' runs backwards; write 22-23,0-2"),
        ({"cron": "*/0 * * * *"}, "cron", "minute '*/0': after '/' comes a step of 1 or more"),
        ({"cron": "0 0 * * fri#6"}, "cron", "day of week 'fri#6': after '#' comes its number in the month, 1 to 5"),
        ({"cron": "0 0 30 2 *"}, "cron", "never due"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "timezone", "unknown time zone 'Mars/Base'"),
        ({"cron": "* * * * *", "timezone": "../etc/passwd"}, "timezone", "unknown time zone"),
        ({"at": "tomorrow"}, "at", "'tomorrow' is not a date and time; write it as '2026-12-24T18:00:00+01:00'"),
        ({"at": "2026-12-24"}, "at", "has no time of day"),
        ({"at": "2026-12-24T18:00"}, "at", "has no offset; add one, such as Z or +02:00, or give a timezone"),
        ({"at": "2026-12-24T18:00Z", "timezone": "UTC"}, "timezone", "has an offset already; keep one of the two"),
        ({"interval": 60, "jitter": "soon"}, "jitter", "'soon' is not a duration"),
        ({"interval": 60, "max_age": "1h", "catch_up": "skip"}, "max_age", "remove one of the two"),
        ({"interval_seconds": 60, "catch_up": "some"}, "catch_up", "'latest', 'skip' or 'all'"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(TriggerConfigError, match=r"^trigger-timer: ") as caught:
        TimerTrigger().configure(config)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_schema_describes_every_key() -> None:
    properties = TimerTrigger.config_schema()["properties"]
    schedules = {"interval", "interval_seconds", "cron", "at"}
    assert set(properties) == schedules | {"timezone", "jitter", "immediate", "catch_up", "max_age"}
    assert all(about["description"] for about in properties.values())
    assert {"type": "string", "pattern": properties["jitter"]["anyOf"][1]["pattern"]} in properties["jitter"]["anyOf"]
