"""What a timer's configuration may say, and what it is told when it cannot work."""

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


def test_interval_seconds_says_the_same_as_interval() -> None:
    assert gap(interval_seconds=90) == gap(interval="1m30s") == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({}, "", "give exactly one of interval, interval_seconds, cron and at; this has none"),
        ({"interval_seconds": 60, "cron": "* * * * *"}, "cron", "exactly one of"),
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
        ({"at": "0001-01-01T00:00+14:00"}, "at", "give a year from 1970 to 9000"),
        ({"interval": True}, "interval", "give seconds, or text such as '15m', '1h30m' or '500ms'"),
        ({"interval": "15 minutes"}, "interval", "'15 minutes' is no duration"),
        ({"interval": "60"}, "interval", "'60' is no duration"),
        ({"interval": "9" * 400 + "s"}, "interval", "finite"),
        ({"interval": "600w"}, "interval", "at most"),
        ({"interval_secs": 60}, "interval_secs", "did you mean 'interval_seconds'?"),
        ({"interval_seconds": 60, "zzz": 1}, "zzz", "known are interval, interval_seconds, cron,"),
        ({"interval_seconds": 60, "timezone": "UTC"}, "timezone", "it goes with cron or at"),
        ({"cron": "* * * *"}, "cron", "it is not minute, hour"),
        ({"cron": ""}, "cron", "it is not minute, hour"),
        ({"cron": 5}, "cron", "text"),
        ({"cron": "61 * * * *"}, "cron", "'61' is no minute; it is 0 to 59"),
        ({"cron": "* * * * someday"}, "cron", "'someday' is no day of week; it is 0 to 7, or sun to sat"),
        ({"cron": "* 22-2 * * *"}, "cron", "'22-2' runs backwards; write 22-23,0-2"),
        ({"cron": "*/0 * * * *"}, "cron", "after '/' comes a number of steps"),
        ({"cron": "0 0 * * fri#6"}, "cron", "after '#' comes which one of the month, 1 to 5"),
        ({"cron": "0 0 30 2 *"}, "cron", "ever due"),
        ({"cron": "R * * * *"}, "cron", "'R' is no minute"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "timezone", "unknown time zone 'Mars/Base'"),
        ({"cron": "* * * * *", "timezone": "../etc/passwd"}, "timezone", "unknown time zone"),
        ({"at": "tomorrow"}, "at", "'tomorrow' is no date and time; write it as '2026-12-24T18:00:00+01:00'"),
        ({"at": "2026-12-24"}, "at", "has no time of day"),
        ({"at": "2026-12-24T18:00"}, "at", "has no offset; add one, such as Z or +02:00, or say a timezone"),
        ({"at": "2026-12-24T18:00Z", "timezone": "UTC"}, "timezone", "has an offset already; keep one of the two"),
        ({"interval": 60, "jitter": "soon"}, "jitter", "'soon' is no duration"),
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
