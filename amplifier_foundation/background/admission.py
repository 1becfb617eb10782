"""What becomes of an event that a trigger yields: whether it is accepted, and how it waits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amplifier_core.conditions import Condition, facts_of
from amplifier_core.errors import SessionNotFound, TriggerError
from amplifier_core.storage import Admission

from .instruction import fill_key

if TYPE_CHECKING:
    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent

    from .config import BackgroundSessionConfig, Rate, TriggerConfig
    from .lane import Engine, Lane

ANCESTORS = 200
"""How many sessions and events of a chain are looked at."""


class Gate:
    """What one background session lets in, by its configuration."""

    def __init__(self, config: BackgroundSessionConfig, clock: Clock) -> None:
        self._config = config
        self._condition = Condition.parse(config.condition) if config.condition else None
        self._caused = SlidingCount(config.rate_limit, clock)

    async def refusal(self, engine: Engine, lane: Lane, trigger: str, event: TriggerEvent) -> str | None:
        """Return why `event` of `trigger` is not to be handled, None when it is."""
        refused = await self.judged(engine.store, (lane.project, lane.key), lane.declared.get(trigger), event)
        if refused is not None:
            return refused
        try:
            await engine.plugins.before_trigger(event)
        except TriggerError as error:
            return str(error)
        return None

    async def judged(
        self, store: DurableStore, place: tuple[str, str], declared: TriggerConfig | None, event: TriggerEvent
    ) -> str | None:
        """Do what `refusal` does without asking plugins; `place` is the project and the key of the lane."""
        config = self._config
        wants_own = declared is not None and declared.config.get("self_trigger") is True
        if event.depth > config.max_depth:
            return f"its chain of causes is longer than max_depth ({config.max_depth})"
        if self._condition is not None and not self._condition.holds(facts_of(event)):
            return f"its 'if' does not hold: {config.condition}"
        if not wants_own and await _descends(store, place, event):
            return "it comes from what this background session did itself (the trigger's self_trigger: true accepts it)"
        if event.depth and not self._caused.add():
            rate = config.rate_limit
            return f"sessions cause more than {rate.limit} events in {rate.period:g} s (rate_limit)"
        return None

    def admission(self, event: TriggerEvent) -> Admission | None:
        """Return how `event` waits, None for one that is due at once and apart from the others."""
        config, debounce = self._config, self._config.debounce
        if config.mode in ("queued", "parallel") and not (config.key or config.priority or debounce):
            return None
        key = fill_key(config.key, event) if config.key else ""
        settle_key = key if debounce is None or debounce.key is None else fill_key(debounce.key, event)
        return Admission(
            key=None if config.mode == "parallel" or (config.mode == "queued" and not config.key) else key,
            overlap={"single": "skip", "restart": "replace"}.get(config.mode, "queue"),  # type: ignore[arg-type]
            priority=config.priority,
            settle_key=settle_key if debounce is not None else None,
            settle=debounce.period if debounce is not None else 0.0,
            settle_within=debounce.timeout if debounce is not None else None,
        )


class SlidingCount:
    """Counts what happens within a sliding period, up to a limit."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._times: deque[float] = deque()

    def wait(self) -> float:
        """Return the seconds until one more fits."""
        now = self._clock.monotonic()
        while self._times and now - self._times[0] >= self._rate.period:
            self._times.popleft()
        return 0.0 if len(self._times) < self._rate.limit else self._times[0] + self._rate.period - now

    def add(self) -> bool:
        """Count one now if it fits; return whether it does."""
        fits = self.wait() <= 0
        if fits:
            self._times.append(self._clock.monotonic())
        return fits


async def _descends(store: DurableStore, place: tuple[str, str], event: TriggerEvent) -> bool:
    """Return whether a session that the lane at `place` woke caused `event`, by whatever chain."""
    session_id = event.source_session_id
    for _ in range(ANCESTORS):
        if session_id is None:
            return False
        woken_by = await store.deliveries(session_id=session_id, limit=1)
        if woken_by and (woken_by[0].project, woken_by[0].lane) == place:
            return True
        session_id = woken_by[0].event.source_session_id if woken_by else await _maker(store, session_id)
    return False


async def _maker(store: DurableStore, session_id: str) -> str | None:
    try:
        return (await store.get(session_id)).parent_id
    except SessionNotFound:
        return None
