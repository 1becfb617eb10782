"""Define clocks: time is passed in, so triggers and retries never look at a clock of their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .contracts import Contract

if TYPE_CHECKING:
    import asyncio


@runtime_checkable
class Clock(Protocol, metaclass=Contract):
    """Tells the time and waits. Tests move the time of `amplifier_core.testing.VirtualClock`."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed; at once when they are not positive."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds of the machine's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        import asyncio  # not at import: `amplifier --help` needs the kernel, not an event loop

        await asyncio.sleep(max(0.0, seconds))


async def sleep_until(clock: Clock, due: datetime) -> None:
    """Wait once for the seconds until `due`, wherever the clock moves before this begins to wait.

    A clock that is set back meanwhile prolongs nothing.
    """
    await clock.sleep((due - clock.now()).total_seconds())


async def wait_for(clock: Clock, event: asyncio.Event, due: datetime) -> bool:
    """Wait for an event until the wall-clock time is `due`; return whether the event is set."""
    import asyncio

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(event.wait())
        sleeping = group.create_task(sleep_until(clock, due))
        await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        sleeping.cancel()
    return event.is_set()
