"""Run a store process with a wrong clock: `python -P shifted_clock.py SECONDS` adds the seconds to every time it reads.

The clock is wrong for Python: `time.time`, `time.time_ns`, and `now`, `utcnow` and `today` of `datetime`. Everything
else is imported after that. Durations and sleeps stay right, as on a host that somebody has set to a wrong time.
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time
from typing import Any


def shift_clock(seconds: float) -> None:
    """Add `seconds` to the clock of this process, for everything that is imported from now on."""
    delta = datetime.timedelta(seconds=seconds)
    true_datetime, true_time, true_time_ns = datetime.datetime, time.time, time.time_ns

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true_datetime)

    class ShiftedDatetime(datetime.datetime, metaclass=AnyDatetime):
        """Make values of the true type."""

        __slots__ = ()  # of its size, too: compiled packages ask for that

        def __new__(cls, *parts: Any, **named: Any) -> Any:
            return true_datetime(*parts, **named)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return true_datetime.now(tz) + delta

        @classmethod
        def utcnow(cls) -> Any:
            return true_datetime.now(datetime.UTC).replace(tzinfo=None) + delta

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    datetime.datetime = ShiftedDatetime  # type: ignore[misc]
    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_time_ns() + round(seconds * 1e9)


if __name__ == "__main__":
    shift_clock(float(sys.argv[1]))
    runpy.run_module("amplifier_core.testing.store_process", run_name="__main__")
