"""The session event trigger: follows the log of events between sessions from where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import TriggerError
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.conditions import Condition
    from amplifier_core.events import SessionEvent

NAME = "trigger-session-event"


class SessionEventTrigger:
    """Fires for each event that matches; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._waiting: asyncio.Future[SessionEvent | None] | None = None
        self._condition: Condition | None = None

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import SessionEventConfig

        return SessionEventConfig.model_json_schema()

    def bind(self, context: TriggerContext) -> None:
        """Take the source of events, and the state of the last one."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the names and sessions to follow. Raises `TriggerConfigError`."""
        from amplifier_core.conditions import Condition
        from amplifier_core.trigger_config import read_trigger_config

        from .config import SessionEventConfig

        self._config = read_trigger_config(NAME, SessionEventConfig, config)
        self._condition = None if self._config.condition is None else Condition.parse(self._config.condition)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for an event that it follows and that counts, else why not."""
        config, name, source = self._config, event.event_name or "", event.source_session_id
        if event.type is not TriggerType.SESSION_EVENT:
            return f"it fires on events of sessions, and this is a {event.type.value} event"
        if not any(_names(wanted, name) for wanted in config.event_names):
            return f"event_names are {', '.join(config.event_names)}, and this one is {name or 'without a name'}"
        if config.source_sessions is not None and source not in config.source_sessions:
            return f"source_sessions are {', '.join(config.source_sessions)}, and it comes from {source or 'none'}"
        return None if self._holds(name, source, event.data) else f"its 'if' does not hold: {config.condition}"

    async def ready(self) -> None:
        """Return when events are followed, or the trigger has ended."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each one stored since the last, then as they happen; at the first start, from now on.

        Raises `TriggerError` where there are no events to follow.
        """
        try:
            stream = await self._follow()
            self._armed.set()
            try:
                while (event := await self._next(stream)) is not None:
                    if self._holds(event.name, event.source_session_id, event.data):
                        yield self._event(event)
            finally:
                close = getattr(stream, "aclose", None)
                if close is not None:
                    await close()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`, also while it waits for an event."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _follow(self) -> AsyncIterator[SessionEvent]:
        events = self._context.events
        if events is None:
            raise TriggerError(NAME, "there are no session events to follow here; run the bundle with: amplifier up")
        since = self._context.state.get("sequence")
        if since is None:
            since = await events.position()
            await self._context.save_state({"sequence": since})
        return events.follow(self._config.event_names, sources=self._config.source_sessions, since=since)

    async def _next(self, stream: AsyncIterator[SessionEvent]) -> SessionEvent | None:
        """Return the next event; None at the end of the stream, or when the trigger was stopped."""
        import asyncio

        if self._stopped:
            return None
        waiting = self._waiting = asyncio.ensure_future(anext(stream, None))
        try:
            await asyncio.wait((waiting,))
        finally:
            if not waiting.done():  # the stream can only be closed when nobody waits in it
                waiting.cancel()
                await asyncio.wait((waiting,))
        return None if waiting.cancelled() or self._stopped else waiting.result()

    def _holds(self, name: str, source: str | None, data: Mapping[str, Any]) -> bool:
        facts = {"name": name, "source_session_id": source, "data": data}
        return self._condition is None or self._condition.holds(facts)

    def _event(self, event: SessionEvent) -> TriggerEvent:
        return TriggerEvent(
            TriggerType.SESSION_EVENT,
            NAME,
            timestamp=self._context.clock.now(),
            data=dict(event.data),
            source_session_id=event.source_session_id,
            event_name=event.name,
            dedupe_key=event.event_id,
            state=None if event.sequence is None else {"sequence": event.sequence},
            cause=event.event_id,
            depth=event.depth + 1,
        )


def _names(wanted: str, name: str) -> bool:
    return wanted == name or (wanted.endswith("*") and name.startswith(wanted[:-1]))
