"""Read cron expressions with croniter, after terms that croniter 7.0 misreads are corrected or refused."""

from __future__ import annotations

import re
from datetime import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from croniter import croniter

TERM = re.compile(r"(\*|\w+)(?:(?<!\*)-(\w+))?(?:/(\d{1,9}))?", re.ASCII)
"""`*`, a number or a name, or a range; with or without a step."""
DAY, WEEKDAY = "day of month", "day of week"
COUNTED = re.compile(r"(\w+?)(?:#(.*)|l)", re.ASCII)
"""One weekday of a month: `5#2` and `fri#2` the second Friday, `5L` and `friL` the last."""


class Field(NamedTuple):
    """One of the five fields: its position, and its values."""

    position: int
    name: str
    low: int
    high: int
    others: str = ""

    def number(self, text: str) -> int:
        """Return the number of some digits or a name. Raises `ValueError`."""
        from croniter import croniter

        names: Any = croniter.ALPHACONV[self.position]
        digits = str(names.get(text, text))
        if not (re.fullmatch(r"\d{1,9}", digits, re.ASCII) and self.low <= int(digits) <= self.high):
            raise ValueError(self.problem(text))
        return int(digits)

    def correct(self, term: str) -> str:
        """Return a term in a spelling that croniter reads as Debian's cron reads the term. Raises `ValueError`.

        croniter reads `5-5` as every value, `22-2` as a range across midnight, the day of week `5/2` without Sunday
        (7), `r` as a random number, and knows `L5` but no `5L`.
        """
        if self.name == DAY and term == "l":
            return term
        if self.name == WEEKDAY and (counted := COUNTED.fullmatch(term)):
            name, which = counted.groups()
            if which not in (None, "1", "2", "3", "4", "5"):
                raise ValueError(f"day of week {term!r}: after '#' comes its number in the month, 1 to 5")
            return f"{self.number(name)}#{which}" if which else f"l{self.number(name)}"
        match = TERM.fullmatch(term)
        if match is None:
            raise ValueError(self.problem(term))
        first, last, step = match.groups()
        if step and not int(step):
            raise ValueError(f"{self.name} {term!r}: after '/' comes a step of 1 or more")
        if first == "*":
            return term
        low = self.number(first)
        high = self.number(last) if last else self.high if step else low
        if self.name == WEEKDAY and high == 0 < low:
            high = 7  # Sunday begins a week, and ends it
        if high < low:
            raise ValueError(f"{self.name} {term!r} runs backwards; write {first}-{self.high},{self.low}-{last}")
        return f"{low}" if low == high else f"{low}-{high}/{step or 1}"

    def problem(self, text: str) -> str:
        """Return an error message for `text`."""
        return f"{self.name} must be {self.low}-{self.high}{self.others}, got {text if text.isalnum() else repr(text)}"


FIELDS = (
    Field(0, "minute", 0, 59),
    Field(1, "hour", 0, 23),
    Field(2, DAY, 1, 31, " or L"),
    Field(3, "month", 1, 12, " or jan-dec"),
    Field(4, WEEKDAY, 0, 7, " or sun-sat"),
)


class CronFields(NamedTuple):
    """A cron expression in two parts: times of day, and days."""

    times: list[time]
    days: list[croniter]
    """A day matches if it matches one of them; each gives days as midnights."""


def read_expression(expression: str) -> CronFields:
    """Return the fields of an expression. Raises `ValueError` with the field and its problem."""
    from croniter import croniter

    parts = expression.lower().split()
    if len(parts) != len(FIELDS):
        raise ValueError("it needs minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'")
    minute, hour, day, month, weekday = (
        ",".join(field.correct(term) for term in part.split(",")) for field, part in zip(FIELDS, parts, strict=True)
    )
    fields: Any = croniter.expand(f"{minute} {hour} * * *")[0]
    minutes, hours = (range(size) if "*" in values else values for values, size in zip(fields, (60, 24), strict=False))
    times = [time(hour, minute) for hour in hours for minute in minutes]
    # day_or: both day fields of one croniter must match; several croniters make up "either"
    return CronFields(times, [croniter(f"0 0 {days}", 0.0, day_or=False) for days in _split_days(day, month, weekday)])


def _split_days(day: str, month: str, weekday: str) -> Iterator[str]:
    """Yield the last three fields of one or more expressions; a day is due when any of them matches.

    As in Debian's cron, both day fields must match if one of them begins with `*`, otherwise either. croniter reads
    `*/2` beside a weekday as "either", drops a day of month beside `fri#2`, refuses `mon,fri#2`, and reads `1,3-31,L`
    as every day.
    """
    days, weekdays = _split_terms(day), _split_terms(weekday)
    if day.startswith("*") or weekday.startswith("*"):
        yield from (f"{one} {month} {other}" for one in days for other in weekdays)
    else:
        yield from (f"{one} {month} *" for one in days)
        yield from (f"* {month} {other}" for other in weekdays)


def _split_terms(field: str) -> list[str]:
    """Return a list of plain days, and one of days counted from the start or end of a month; none is empty."""
    terms = field.split(",")
    counted = [term for term in terms if "#" in term or "l" in term]
    plain = [term for term in terms if term not in counted]
    return [",".join(each) for each in (plain, counted) if each]
