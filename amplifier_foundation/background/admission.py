"""Decide about a trigger's event: whether it is accepted, and how it waits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amplifier_core.conditions import Condition, facts_of
from amplifier_core.errors import InvalidSessionId, SessionNotFound, TriggerError
from amplifier_core.storage import Admission
from amplifier_core.triggers import TriggerType
from amplifier_core.utils.secrets import redact_text

from ..bundle.templates import fill_key
from .file_causes import delay_of

if TYPE_CHECKING:
    from amplifier_core.clock import Clock
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent

    from ..bundle.background_config import BackgroundSessionConfig, Rate, TriggerConfig
    from .state import BackgroundSessionState, Engine

ANCESTORS = 200
"""Links of a chain of causes that are followed, at most."""
_WORKED_ON = (TriggerType.FILE_CHANGE, TriggerType.ISSUE_EVENT)


class Gate:
    """Admits events to one background session, by its configuration."""

    def __init__(self, config: BackgroundSessionConfig, clock: Clock) -> None:
        self._config = config
        self._condition = Condition.parse(config.condition) if config.condition else None
        self._caused = SlidingCount(config.rate_limit, clock) if config.rate_limit else None

    async def refusal(
        self,
        store: DurableStore,
        plugins: Plugins,
        place: tuple[str, str],
        declared: TriggerConfig | None,
        event: TriggerEvent,
    ) -> str | None:
        """Return the reason to refuse `event` of a trigger, None to accept it; `place` is (project, queue).

        Raises `PluginError` for a plugin that fails when it is asked.
        """
        refused = await self.evaluate(store, place, declared, event)
        if refused is not None:
            return refused
        try:
            await plugins.before_trigger(event)
        except TriggerError as error:
            return redact_text(str(error))
        return None

    async def evaluate(
        self, store: DurableStore, place: tuple[str, str], declared: TriggerConfig | None, event: TriggerEvent
    ) -> str | None:
        """Return the reason to refuse, as `refusal` does, without asking plugins."""
        config = self._config
        wants_own = declared is not None and declared.config.get("self_trigger") is True
        if event.depth > config.max_depth:
            return f"its chain of causes is longer than max_depth ({config.max_depth})"
        if self._condition is not None and not self._condition.holds(facts_of(event)):
            return f"its 'if' does not hold: {config.condition}"
        if not wants_own and await _descends_from_queue(store, place, event):
            return "this background session caused it itself (self_trigger: true in the trigger's config accepts it)"
        return None

    async def reserve(self, engine: Engine, background: BackgroundSessionState, event: TriggerEvent) -> float:
        """Take the first place of `rate_limit` for an event that a session caused; return the seconds until it."""
        rate = self._config.rate_limit
        if rate is None or self._caused is None or not event.depth:
            return 0.0
        if engine.member is None:
            return self._caused.reserve()
        name = f"{background.queue}#rate_limit"
        return await engine.member.store.reserve(background.project, name, rate.limit, rate.period)

    def admission(self, event: TriggerEvent, rate_delay: float = 0.0) -> Admission | None:
        """Return how `event` waits; None: it is due at once, whatever else waits.

        Bursts are delayed, never refused: an event above `rate_limit` settles for as long as the limit asks, under a
        key of its own (`rate_delay`, from `reserve`), and a suspected loop through a file under the key of the file.
        """
        config, debounce = self._config, self._config.debounce
        delay = max(rate_delay, delay_of(event))
        if config.mode in ("queued", "parallel") and not (config.key or config.priority or debounce or delay):
            return None
        key = fill_key(config.key, event) if config.key else ""
        settle_key: str | None = key if debounce is None or debounce.key is None else fill_key(debounce.key, event)
        if debounce is None:
            settle_key = f"event {event.event_id}" if rate_delay else f"file {event.file_path}" if delay else None
        return Admission(
            key=None if config.mode == "parallel" or (config.mode == "queued" and not config.key) else key,
            overlap={"single": "skip", "restart": "replace"}.get(config.mode, "queue"),  # type: ignore[arg-type]
            priority=config.priority,
            settle_key=settle_key,
            settle=max(delay, debounce.period if debounce is not None else 0.0),
            settle_within=delay or None if debounce is None else debounce.timeout and max(delay, debounce.timeout),
        )


class SlidingCount:
    """Counts occurrences within a sliding period, up to a limit."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._times: deque[float] = deque()

    def wait(self) -> float:
        """Return the seconds until one more fits."""
        now = self._clock.monotonic()
        while self._times and now - self._times[0] >= self._rate.period:
            self._times.popleft()
        if len(self._times) < self._rate.limit:
            return 0.0
        return max(0.0, self._times[-self._rate.limit] + self._rate.period - now)

    def add(self) -> None:
        """Count one now."""
        self._times.append(self._clock.monotonic())

    def reserve(self) -> float:
        """Count one at the first time with room for it, now or later; return the seconds until then."""
        seconds = self.wait()
        self._times.append(self._clock.monotonic() + seconds)
        return seconds


async def _descends_from_queue(store: DurableStore, place: tuple[str, str], event: TriggerEvent) -> bool:
    """Return whether a session of the queue at `place` is among the causes of `event`.

    The search ends at a file or an issue: background sessions may work on each other's, up to `max_depth`.
    """
    session_id = None if event.type in _WORKED_ON else event.source_session_id
    for _ in range(ANCESTORS):
        if session_id is None:
            return False
        woken_by = await store.deliveries(session_id=session_id, limit=1)
        if woken_by and (woken_by[0].project, woken_by[0].queue) == place:
            return True
        if not woken_by:
            session_id = await _parent_id(store, session_id)
        elif woken_by[0].event.type in _WORKED_ON:
            return False
        else:
            session_id = woken_by[0].event.source_session_id
    return False


async def _parent_id(store: DurableStore, session_id: str) -> str | None:
    try:
        return (await store.get(session_id)).parent_id
    except (SessionNotFound, InvalidSessionId):
        return None
