"""The five fields of a cron expression, as Debian's cron reads them, and besides `L`, `5L` and `5#2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LAST = 0
"""The last day of a month, among its days; the last of its weekday, among those that are counted."""


class CronFields(NamedTuple):
    """What each field allows; a weekday is 0 (Sunday) to 6."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    counted: frozenset[tuple[int, int]]
    """Weekdays with which of the month they are, from 1."""


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def values(self, text: str) -> set[int]:
        """Return what a list of numbers, ranges and steps allows. Raises `ValueError`."""
        return {value for term in text.split(",") for value in self._term(term)}

    def _term(self, term: str) -> range:
        base, slash, step = term.partition("/")
        low, dash, high = base.partition("-")
        if base == "*":
            first, last = self.low, self.high
        else:
            first = self.number(low)
            last = self.number(high) if dash else self.high if slash else first
        if last < first and self is WEEKDAY and last == 0:
            last = 7  # Sunday begins a week, and ends it
        if last < first:
            raise ValueError(f"{term!r} runs backwards; write {low}-{self.high},{self.low}-{high}")
        if slash and not (step.isdecimal() and int(step) > 0):
            raise ValueError(f"{term!r}: after '/' comes a number of steps, 1 or more")
        return range(first, last + 1, int(step) if slash else 1)

    def number(self, text: str) -> int:
        """Return the number that is meant, by its digits or its name."""
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        if not (text.isascii() and text.isdecimal() and self.low <= int(text) <= self.high):
            names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise ValueError(f"{text!r} is no {self.name}; it is {self.low} to {self.high}{names}")
        return int(text)


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

MINUTE = _Kind("minute", 0, 59)
HOUR = _Kind("hour", 0, 23)
DAY = _Kind("day of month", 1, 31)
MONTH = _Kind("month", 1, 12, MONTHS)
WEEKDAY = _Kind("day of week", 0, 7, WEEKDAYS)


def read_fields(expression: str) -> CronFields:
    """Return the fields of an expression. Raises `ValueError` with what is wrong in which."""
    parts = expression.split()
    if len(parts) != 5:
        raise ValueError("it is not minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'")
    minute, hour, day, month, weekday = parts
    weekdays, counted = _weekdays(weekday)
    return CronFields(
        frozenset(MINUTE.values(minute)),
        frozenset(HOUR.values(hour)),
        _days(day),
        frozenset(MONTH.values(month)),
        weekdays,
        counted,
    )


def _days(text: str) -> frozenset[int]:
    terms = text.split(",")
    plain = ",".join(term for term in terms if term.upper() != "L")
    return frozenset(DAY.values(plain) if plain else ()) | (frozenset() if plain == text else {LAST})


def _weekdays(text: str) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """Return the weekdays that are allowed in every week, and those of which only one in a month is."""
    plain, counted = set[int](), set[tuple[int, int]]()
    for term in text.split(","):
        name, hash_sign, which = term.partition("#")
        if hash_sign:
            if which not in ("1", "2", "3", "4", "5"):
                raise ValueError(f"{term!r}: after '#' comes which one of the month, 1 to 5")
            counted.add((WEEKDAY.number(name) % 7, int(which)))
        elif len(term) > 1 and term[-1] in "lL":
            counted.add((WEEKDAY.number(term[:-1]) % 7, LAST))
        else:
            plain |= {value % 7 for value in WEEKDAY.values(term)}
    return frozenset(plain), frozenset(counted)
