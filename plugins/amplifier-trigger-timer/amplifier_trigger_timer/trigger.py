"""Fire at absolute deadlines, also when somebody sets the clock."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType, Upcoming

from .lateness import CatchUpPolicy, ClockWatch, Jitter, rfc3339
from .sleeping import Sleepers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator, Mapping

logger = logging.getLogger(__name__)

NAME = "trigger-timer"
FOREVER = 10 * 366 * 86_400.0
"""Seconds; after so long a timer that is never due again, or even later, looks at the clock again."""
NEVER = timedelta(seconds=-1)
SUSPENDED = timedelta(seconds=60)
"""No busy loop delays a tick by so much: the machine was suspended."""


class TimerTrigger:
    """A trigger by time; a stopped one does not start again.

    `_next` is the due time it sleeps until (None: never again), `_last` the due time of the last tick. The state
    `{"last", "tick"}` rides on each event, so a restart continues after the last stored tick.
    """

    fires_by_clock = True

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

    @staticmethod
    def event_names() -> set[str]:
        """Return the names in its events, for checks of templates and conditions."""
        return {"tick", "scheduled", "cron", "interval", "at"}

    def bind(self, context: TriggerContext) -> None:
        """Take the clock, and the state of the last event."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the schedule. Raises `TriggerConfigError`."""
        from .config import make_schedule, read_config

        checked = read_config(NAME, config)
        self._immediate = checked.immediate
        self._policy = CatchUpPolicy(checked.catch_up, checked.max_age)
        self._jitter = Jitter(checked.jitter, self._context.name)
        self._schedule = make_schedule(checked)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for a tick, whenever it is due, else the reason against it."""
        timer = event.type is TriggerType.TIMER
        return None if timer else f"it fires at times, and this is a {event.type.value} event"

    def upcoming(self, after: datetime) -> Iterator[Upcoming]:
        """Yield the fires after a moment; an interval without a state counts from there."""
        stored = self._context.state.get("last")
        last = datetime.fromisoformat(stored) if stored else None
        origin = last if last is not None and last <= after else after
        delay = timedelta(seconds=self._jitter.seconds)
        for due, note in self._schedule.walk(max(origin, after - delay), origin):
            fires = self._jitter.apply(self._schedule, due)
            if fires > after and due != last:
                delayed = f"due {due.astimezone(self._schedule.zone):%H:%M:%S}, jitter" if fires != due else ""
                yield Upcoming(fires.astimezone(self._schedule.zone), "; ".join(filter(None, (note, delayed))))

    async def ready(self) -> None:
        """Return when the timer runs, or has ended."""
        await self._armed.wait()

    def caught_up(self) -> bool:
        """Return whether it waits for its next due time."""
        return self._sleep is not None and not self._sleep.done()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event at every due time, however long the handler of the one before took."""
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
                dues = self._take_due()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`, also in the middle of a sleep."""
        self._stopped = True
        if self._sleep is not None:
            self._sleep.cancel()

    async def _begin(self) -> list[datetime]:
        """Set the first deadline, from the stored state or from now; return the due times to fire at once."""
        now, state = self._context.clock.now(), self._context.state
        self._clock_watch, self._sleepers = ClockWatch(self._context.clock), Sleepers.of(self._context.clock)
        if not state:
            state = {"last": rfc3339(now), "tick": 0}
            await self._context.save_state(state)  # so that a restart catches up a missed first tick, too
        self._tick = state["tick"]
        self._last = datetime.fromisoformat(state["last"])
        self._next = self._next_unfired(min(self._last, now))
        if self._next is None and not self._tick:
            logger.warning("%s: its time is over; it does not fire", self._context.name)
        dues = self._catch_up(now, grace=NEVER)
        if self._immediate and not dues:
            self._next = self._schedule.next_after(now)
            return [now]
        return dues

    def _next_unfired(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment` besides that of the last tick."""
        due = self._schedule.next_after(moment)
        return self._schedule.next_after(due) if due is not None and due == self._last else due

    def _take_due(self) -> list[datetime]:
        """Return the due times that the last sleep reached: one, unless the clock jumped meanwhile."""
        now, due = self._context.clock.now(), self._next
        jumped = self._clock_watch.has_jumped()
        if due is None or jumped or now - self._jitter.apply(self._schedule, due) > SUSPENDED:
            return self._catch_up(now, grace=SUSPENDED)
        self._next = self._schedule.next_after(due)
        return [due]

    def _catch_up(self, now: datetime, *, grace: timedelta) -> list[datetime]:
        """Return the missed due times up to `now` that fire, and set the next one.

        The newest fires in any case if it is at most `grace` late.
        """
        if self._next is None or self._next > now:
            return []
        missed = self._schedule.list_missed(self._next, now, self._policy.limit + 1)
        late = now - self._jitter.apply(self._schedule, missed[-1])
        if late < timedelta():  # it is due, and its delay is not over
            self._next = missed.pop()
        else:
            self._next = self._schedule.next_after(missed[-1])
        chosen = self._policy.choose(missed[-self._policy.limit :], now, self._context.name)
        return chosen or (missed[-1:] if timedelta() <= late <= grace else [])

    async def _sleep_until_due(self) -> bool:
        """Return True at the deadline, False after `stop`."""
        while not self._stopped:
            now = self._context.clock.now()
            if now < self._last:  # the clock was set back
                candidates = (self._next, self._next_unfired(now))
                self._next = min((each for each in candidates if each is not None), default=None)
            if self._next is None:
                seconds = FOREVER
            else:
                seconds = (self._jitter.apply(self._schedule, self._next) - now).total_seconds()
            if seconds <= 0:
                return True
            await self._interruptible_sleep(min(seconds, FOREVER))
        return False

    async def _interruptible_sleep(self, seconds: float) -> None:
        import asyncio

        self._sleep = self._sleepers.begin(seconds)
        try:
            await asyncio.wait((self._sleep,))
        finally:
            self._sleep.cancel()

    def _event(self, due: datetime) -> TriggerEvent:
        self._tick += 1
        self._last = due
        scheduled = rfc3339(due)
        # a clock that is set back brings an interval to times it had before; the number of the tick tells them apart
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
