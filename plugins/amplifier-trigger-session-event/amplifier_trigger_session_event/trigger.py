"""Follow the events of other sessions, and fire for those that match."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.errors import TriggerError
from amplifier_core.ids import name_in_session_id
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping, Sequence

    from amplifier_core.conditions import Condition
    from amplifier_core.events import SessionEvent

NAME = "trigger-session-event"


class Router(Protocol):
    """A router of events without a log: `EventRouter()`, or one of another program."""

    def subscribe(
        self, event_names: Sequence[str], source_sessions: Sequence[str] | None = None, queue_size: int | None = 100
    ) -> AsyncIterator[SessionEvent]:
        """Yield matching events from this call on."""
        ...


class SessionEventTrigger:
    """A trigger by events of sessions; a stopped one does not start again.

    With `bind`, it follows a log: the sequence of the last event rides on each event as state, so a restart goes on
    after it. With `set_event_router` alone, it follows a router without a log, from now on.
    """

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._waiting: asyncio.Future[SessionEvent | None] | None = None
        self._router: Router | None = None
        self._condition: Condition | None = None
        self._projects: set[str] | None = None

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import SessionEventConfig

        return SessionEventConfig.model_json_schema()

    def bind(self, context: TriggerContext) -> None:
        """Take the log of events, and the state of the last one."""
        self._context = context

    def set_event_router(self, router: Router) -> None:
        """Follow a router if `bind` gave no log: from now on, and with no memory of a restart."""
        self._router = router

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the names and sessions. Raises `TriggerConfigError`."""
        from amplifier_core.conditions import Condition
        from amplifier_core.trigger_config import read_trigger_config

        from .config import SessionEventConfig

        self._config = read_trigger_config(NAME, SessionEventConfig, config)
        home, origin = self._context.working_dir, self._config.origin
        folders = ["."] if origin == "project" else origin
        if folders != "any":
            self._projects = {str((home / Path(folder).expanduser()).resolve()) for folder in folders}
        self._condition = None if self._config.condition is None else Condition.parse(self._config.condition)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for an event that fires, else the reason against it."""
        config, name, source = self._config, event.event_name or "", event.source_session_id
        if event.type is not TriggerType.SESSION_EVENT:
            return f"it fires on events of sessions, and this is a {event.type.value} event"
        if not any(
            wanted == name or (wanted.endswith("*") and name.startswith(wanted[:-1])) for wanted in config.event_names
        ):
            return f"event_names are {', '.join(config.event_names)}, and this one is {name or 'without a name'}"
        sources = {source, name_in_session_id(source or "")}
        if config.source_sessions is not None and sources.isdisjoint(config.source_sessions):
            return f"source_sessions are {', '.join(config.source_sessions)}, and it comes from {source or 'none'}"
        return None if self._holds(name, source, event.data) else f"its 'if' does not hold: {config.condition}"

    async def ready(self) -> None:
        """Return when the trigger follows events, or has ended."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each one since the last, then for new ones; at the very first start, for new ones only.

        Raises `TriggerError` if there is neither a log nor a router.
        """
        try:
            stream = await self._follow()
            self._armed.set()
            try:
                while (event := await self._next(stream)) is not None:
                    if self._hears(event) and self._holds(event.name, event.source_session_id, event.data):
                        yield self._event(event)
            finally:
                if (aclose := getattr(stream, "aclose", None)) is not None:
                    await aclose()
                elif (close := getattr(stream, "close", None)) is not None:
                    close()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`, also while it waits."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _follow(self) -> AsyncIterator[SessionEvent]:
        events, config = self._context.events, self._config
        if events is None and self._router is not None:
            return self._router.subscribe(config.event_names, config.source_sessions, None)
        if events is None:
            raise TriggerError(NAME, "there are no session events to follow here; run the bundle with: amplifier up")
        since = self._context.state.get("sequence")
        if since is None:
            since = await events.position()
            await self._context.save_state({"sequence": since})
        return events.follow(config.event_names, sources=config.source_sessions, since=since)

    async def _next(self, stream: AsyncIterator[SessionEvent]) -> SessionEvent | None:
        """Return the next event; None at the end of the stream, or after `stop`."""
        import asyncio

        if self._stopped:
            return None
        waiting = self._waiting = asyncio.ensure_future(anext(stream, None))
        try:
            await asyncio.wait((waiting,))
        finally:
            if not waiting.done():  # a stream closes only while nobody waits in it
                waiting.cancel()
                await asyncio.wait((waiting,))
        return None if waiting.cancelled() or self._stopped else waiting.result()

    def _hears(self, event: SessionEvent) -> bool:
        """Return whether the event comes from a project that counts, or from a program, for everybody."""
        return self._projects is None or event.project is None or event.project in self._projects

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
