"""Test the corrections of cron expressions: what croniter 7.0 reads by itself, and what Debian's cron means.

Each case asks croniter alone for its misreading; once croniter mends one, its case fails and the correction can go.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadCronError, croniter

from amplifier_trigger_timer.cron import Cron
from amplifier_trigger_timer.expression import read_expression

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
BERLIN = "Europe/Berlin"


def by_croniter(expression: str, count: int, **options: Any) -> list[str]:
    """Return the first due times as croniter alone has them."""
    walk = croniter(expression, START, ret_type=datetime, **options)
    return [f"{due:%m-%d %H:%M}" for due in islice(walk, count)]


def by_ours(expression: str, count: int) -> list[str]:
    dues = islice(Cron(expression).walk(START, START), count)
    return [f"{due:%m-%d %H:%M}" for due, _ in dues]


@pytest.mark.parametrize(
    ("expression", "misread", "due"),
    [
        ("5-5 0 * * *", ["01-01 00:01", "01-01 00:02"], ["01-01 00:05", "01-02 00:05"]),
        ("0 5-05/3 * * *", ["01-01 03:00", "01-01 06:00"], ["01-01 05:00", "01-02 05:00"]),
        ("0 0 1 feb-2 *", ["02-01 00:00", "03-01 00:00"], ["02-01 00:00", "02-01 00:00"]),
        ("0 0 * * sun-sun", ["01-02 00:00", "01-03 00:00"], ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 7-0", ["01-02 00:00", "01-03 00:00"], ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 5/2", ["01-02 00:00", "01-09 00:00"], ["01-02 00:00", "01-04 00:00"]),
    ],
)
def test_a_range_means_its_own_values(expression: str, misread: list[str], due: list[str]) -> None:
    assert by_croniter(expression, len(misread)) == misread
    assert by_ours(expression, len(due)) == due


def test_a_day_field_that_begins_with_a_star_narrows_the_other() -> None:
    expression = "0 0 */2 * mon"
    assert by_croniter(expression, 3) == ["01-03 00:00", "01-05 00:00", "01-07 00:00"]
    assert by_croniter(expression, 2, implement_cron_bug=True) == ["01-05 00:00", "01-19 00:00"]
    assert by_ours(expression, 2) == ["01-05 00:00", "01-19 00:00"]


def test_the_day_of_month_and_a_counted_weekday_are_alternatives_as_any_two_days() -> None:
    expression = "0 0 13 * fri#2"
    assert by_croniter(expression, 2) == ["01-09 00:00", "02-13 00:00"]
    assert by_ours(expression, 4) == ["01-09 00:00", "01-13 00:00", "02-13 00:00", "03-13 00:00"]


def test_the_last_day_of_the_month_beside_thirty_others_is_not_every_day() -> None:
    expression = "0 0 1,3-31,L * *"
    assert by_croniter(expression, 1) == ["01-02 00:00"]
    assert by_ours(expression, 2) == ["01-03 00:00", "01-04 00:00"]


def test_weekdays_of_every_week_and_counted_ones_mix() -> None:
    with pytest.raises(CroniterBadCronError, match="does not support mixing"):
        croniter("0 0 * * mon,fri#2")
    assert by_ours("0 0 * * mon,fri#2", 3) == ["01-05 00:00", "01-09 00:00", "01-12 00:00"]


@pytest.mark.parametrize("expression", ["0 0 * * 5L", "0 0 * * friL", "0 0 * * fril"])
def test_the_last_weekday_of_a_month_is_written_after_the_day(expression: str) -> None:
    with pytest.raises(CroniterBadCronError):
        croniter(expression)
    assert by_ours(expression, 2) == ["01-30 00:00", "02-27 00:00"]


@pytest.mark.parametrize("expression", ["r 0 * * *", "0 22-2 * * *", "0 0 15w * *", "0 0 ? * *", "0 0 * * * *"])
def test_croniter_takes_what_debians_cron_refuses(expression: str) -> None:
    assert croniter.is_valid(expression)
    with pytest.raises(ValueError, match=r"must be|runs backwards|it needs"):
        read_expression(expression)


def test_croniter_alone_fires_a_fixed_time_twice_when_clocks_go_back() -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo(BERLIN))
    alone = croniter("30 2 * * *", start, ret_type=datetime)
    assert [f"{due:%d %H:%M %z}" for due in islice(alone, 2)] == ["25 02:30 +0200", "25 02:30 +0100"]
    ours = islice(Cron("30 2 * * *", BERLIN).walk(start, start), 2)
    assert [f"{due:%d %H:%M}" for due, _ in ours] == ["25 00:30", "26 01:30"]


@pytest.mark.parametrize(("config", "imported"), [({"interval": 60}, False), ({"cron": "0 9 * * *"}, True)])
def test_croniter_is_imported_when_a_timer_has_a_cron_expression(config: dict[str, Any], imported: bool) -> None:
    code = f"""
import sys
from amplifier_trigger_timer import TimerTrigger
TimerTrigger.config_schema()
TimerTrigger().configure({config!r})
print("croniter" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == str(imported)
