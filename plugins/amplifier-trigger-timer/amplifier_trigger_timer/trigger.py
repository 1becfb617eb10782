"""The timer as a trigger: absolute deadlines, whatever is done to the clock."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType, Upcoming

from .lateness import CatchUpPolicy, Jitter, Jumps, rfc3339

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator, Mapping

    from .config import TimerConfig
    from .schedule import Schedule

logger = logging.getLogger(__name__)

NAME = "trigger-timer"
LONGEST_SLEEP = 60.0
"""Seconds after which the wall clock is looked at again: it may be set, and a suspended machine's sleep is longer."""
NEVER = timedelta(seconds=-1)
SUSPENDED = timedelta(seconds=60)
"""A tick that is this late was not delayed by a busy loop: the machine did not run."""


class TimerTrigger:
    """Fires when its schedule is due; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._sleep: asyncio.Future[None] | None = None
        self._tick = 0
        self._next: datetime | None = None

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
        from .config import read_config

        checked = read_config(NAME, config)
        self._immediate = checked.immediate
        self._policy = CatchUpPolicy(checked.catch_up, checked.max_age)
        self._jitter = Jitter(checked.jitter, self._context.name)
        self._schedule = _schedule(checked)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for a tick, whenever it is due, else why it is none."""
        timer = event.type is TriggerType.TIMER
        return None if timer else f"it fires at times, and this is a {event.type.value} event"

    def upcoming(self, after: datetime) -> Iterator[Upcoming]:
        """Yield when it fires after this moment; an interval without a state counts from there."""
        last = self._stored_last()
        origin = last if last is not None and last <= after else after
        delay = timedelta(seconds=self._jitter.seconds)
        for due, note in self._schedule.coming(max(origin, after - delay), origin):
            fires = self._jitter.fires(self._schedule, due)
            if fires > after and due != last:
                delayed = f"due {due.astimezone(self._schedule.zone):%H:%M:%S}, jitter" if fires != due else ""
                yield Upcoming(fires.astimezone(self._schedule.zone), "; ".join(filter(None, (note, delayed))))

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

    def _stored_last(self) -> datetime | None:
        last = self._context.state.get("last")
        return datetime.fromisoformat(last) if last else None

    async def _begin(self) -> list[datetime]:
        """Set the first deadline, from the stored state or from now; return what is due at once."""
        now, state = self._context.clock.now(), self._context.state
        self._jumps = Jumps(self._context.clock)
        if not state:
            state = {"last": rfc3339(now), "tick": 0}
            await self._context.save_state(state)  # a first tick that is missed is caught up, too
        self._tick = state["tick"]
        self._last = datetime.fromisoformat(state["last"])
        self._next = self._following(min(self._last, now))
        if self._next is None and not self._tick:
            logger.warning("%s: its time is over; it does not fire", self._context.name)
        dues = self._missed(now, grace=NEVER)
        if self._immediate and not dues:
            self._next = self._schedule.after(now)
            return [now]
        return dues

    def _following(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment` that is not the one that fired last."""
        due = self._schedule.after(moment)
        return self._schedule.after(due) if due is not None and due == self._last else due

    def _reached(self) -> list[datetime]:
        """Return the deadlines that the last sleep reached: one, unless the clock jumped or stood still meanwhile."""
        now, due = self._context.clock.now(), self._next
        jumped = self._jumps.noticed()
        if due is None or jumped or now - self._jitter.fires(self._schedule, due) > SUSPENDED:
            return self._missed(now, grace=SUSPENDED)
        self._next = self._schedule.after(due)
        return [due]

    def _missed(self, now: datetime, *, grace: timedelta) -> list[datetime]:
        """Return what of the deadlines up to `now` fires, the newest in any case within `grace`; set the next one."""
        if self._next is None or self._next > now:
            return []
        missed = self._schedule.missed(self._next, now, self._policy.limit + 1)
        late = now - self._jitter.fires(self._schedule, missed[-1])
        if late < timedelta():  # it is due, and its delay is not over
            self._next = missed.pop()
        else:
            self._next = self._schedule.after(missed[-1])
        chosen = self._policy.chosen(missed[-self._policy.limit :], now, self._context.name)
        return chosen or (missed[-1:] if timedelta() <= late <= grace else [])

    async def _sleep_until_due(self) -> bool:
        """Return True at the deadline, False when the timer was stopped."""
        while not self._stopped:
            now = self._context.clock.now()
            if now < self._last:  # the clock was set back
                self._next = _earlier(self._next, self._following(now))
            if self._next is None:
                seconds = LONGEST_SLEEP
            else:
                seconds = (self._jitter.fires(self._schedule, self._next) - now).total_seconds()
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
        self._last = due
        scheduled = rfc3339(due)
        # an interval that begins anew after the clock was set back may come to times that it had before
        which = scheduled if self._schedule.on_the_wall else f"{scheduled} {self._tick}"
        return TriggerEvent(
            TriggerType.TIMER,
            NAME,
            timestamp=self._context.clock.now(),
            data={"tick": self._tick, **self._schedule.describe(), "scheduled": scheduled},
            # the name, because two timers of one background session may be due at the same time
            dedupe_key=f"{self._context.name} {which}",
            state={"last": scheduled, "tick": self._tick},
        )


def _schedule(config: TimerConfig) -> Schedule:
    from .cron import Cron
    from .schedule import Interval, Once

    if config.cron is not None:
        return Cron(config.cron, config.timezone)
    if config.at is not None:
        return Once(config.at, config.timezone)
    return Interval(config.interval if config.interval is not None else config.interval_seconds or 0.0)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)
