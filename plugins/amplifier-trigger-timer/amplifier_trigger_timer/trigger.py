"""The timer as a trigger: absolute deadlines, and what happens to those that were missed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

    from .config import CatchUp
    from .schedule import Schedule

logger = logging.getLogger(__name__)

NAME = "trigger-timer"
CATCH_UP_LIMIT = 1000
"""Ticks that `catch_up: all` fires at most, the newest."""
LONGEST_SLEEP = 60.0
"""Seconds after which the wall clock is looked at again: it may be set, and a suspended machine's sleep is longer."""
SUSPENDED = timedelta(seconds=60)
"""A sleep that ends this late was not a busy loop: the machine did not run."""


class TimerTrigger:
    """Fires when its schedule is due; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._sleep: asyncio.Future[None] | None = None
        self._tick = 0

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import TimerConfig

        return TimerConfig.model_json_schema()

    def bind(self, context: TriggerContext) -> None:
        """Take the clock, and the state of the last event."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the schedule. Raises `TriggerConfigError`."""
        from amplifier_core.trigger_config import read_trigger_config

        from .config import TimerConfig
        from .schedule import Cron, Interval

        checked = read_trigger_config(NAME, TimerConfig, config)
        self._immediate = checked.immediate
        self._catch_up: CatchUp = checked.catch_up
        self._schedule: Schedule
        if checked.cron is not None:
            self._schedule = Cron(checked.cron, checked.timezone)
        elif checked.interval_seconds is not None:
            self._schedule = Interval(checked.interval_seconds)

    async def ready(self) -> None:
        """Return when the timer runs, or has ended."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event at every due time, however long the one before took."""
        try:
            dues = await self._begin()
            self._armed.set()
            while True:
                for due in dues:
                    if self._stopped:
                        return
                    yield self._event(due)
                if not await self._sleep_until_due():
                    return
                dues = self._reached()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`, also in the middle of a sleep."""
        self._stopped = True
        if self._sleep is not None:
            self._sleep.cancel()

    async def _begin(self) -> list[datetime]:
        """Set the first deadline, from the stored state or from now; return what is due at once."""
        now, state = self._context.clock.now(), self._context.state
        if not state:
            state = {"last": _text(now), "tick": 0}
            await self._context.save_state(state)  # a first tick that is missed is caught up, too
        self._tick = state["tick"]
        last = datetime.fromisoformat(state["last"])
        dues = self._missed(self._schedule.after(min(last, now)), now)
        if self._immediate and not dues:
            self._next = self._schedule.after(now)
            return [now]
        return dues

    def _reached(self) -> list[datetime]:
        """Return the deadlines that the last sleep reached: one, unless the machine was suspended meanwhile."""
        now = self._context.clock.now()
        if now - self._next > SUSPENDED:
            return self._missed(self._next, now)
        due, self._next = self._next, self._schedule.after(self._next)
        return [due]

    def _missed(self, first: datetime, now: datetime) -> list[datetime]:
        """Return what of the deadlines from `first` to `now` fires, and set the next one."""
        self._next = first
        missed = self._schedule.missed(first, now, CATCH_UP_LIMIT + 1 if self._catch_up == "all" else 1)
        if not missed:
            return []
        self._next = self._schedule.after(missed[-1])
        if len(missed) > CATCH_UP_LIMIT:
            logger.warning("%s missed more than %d ticks; the newest fire", self._context.name, CATCH_UP_LIMIT)
        return [] if self._catch_up == "skip" else missed[-CATCH_UP_LIMIT:]

    async def _sleep_until_due(self) -> bool:
        """Return True at the deadline, False when the timer was stopped."""
        while not self._stopped:
            now = self._context.clock.now()
            self._next = min(self._next, self._schedule.after(now))  # the clock may have been set back
            seconds = (self._next - now).total_seconds()
            if seconds <= 0:
                return True
            await self._interruptible_sleep(min(seconds, LONGEST_SLEEP))
        return False

    async def _interruptible_sleep(self, seconds: float) -> None:
        import asyncio

        self._sleep = asyncio.ensure_future(self._context.clock.sleep(seconds))
        try:
            await asyncio.wait((self._sleep,))
        finally:
            self._sleep.cancel()

    def _event(self, due: datetime) -> TriggerEvent:
        self._tick += 1
        scheduled = _text(due)
        return TriggerEvent(
            TriggerType.TIMER,
            NAME,
            timestamp=self._context.clock.now(),
            data={"tick": self._tick, **self._schedule.describe(), "scheduled": scheduled},
            # the name, because two timers of one background session may be due at the same time
            dedupe_key=f"{self._context.name} {scheduled}",
            state={"last": scheduled, "tick": self._tick},
        )


def _text(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
