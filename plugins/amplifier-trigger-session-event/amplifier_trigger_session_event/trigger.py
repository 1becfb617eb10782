"""Follow the events of other sessions, and fire for those that match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.ids import name_in_session_id
from amplifier_core.log_triggers import LogTrigger, find_projects
from amplifier_core.triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.conditions import Condition
    from amplifier_core.events import SessionEvent

NAME = "trigger-session-event"


class SessionEventTrigger(LogTrigger):
    """A trigger by events of sessions; see `LogTrigger`."""

    name = NAME
    no_events = "there are no session events to follow here; run the bundle with: amplifier up"

    def __init__(self) -> None:
        super().__init__()
        self._condition: Condition | None = None
        self._projects: frozenset[str] | None = None

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import SessionEventConfig

        return SessionEventConfig.model_json_schema()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the names and sessions. Raises `TriggerConfigError`."""
        from amplifier_core.conditions import Condition
        from amplifier_core.trigger_config import read_trigger_config

        from .config import SessionEventConfig

        self._config = read_trigger_config(NAME, SessionEventConfig, config)
        self.names, self.sources = self._config.event_names, self._config.source_sessions
        self._projects = find_projects(self._config.origin, self.context.working_dir)
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

    def read(self, event: SessionEvent) -> TriggerEvent | None:
        """Return the event to wake with; None for one of another project, and where the condition does not hold.

        An event without a project comes from a program, and is for everybody.
        """
        if self._projects is not None and event.project is not None and event.project not in self._projects:
            return None
        if not self._holds(event.name, event.source_session_id, event.data):
            return None
        return TriggerEvent(
            TriggerType.SESSION_EVENT,
            NAME,
            timestamp=self.context.clock.now(),
            data=dict(event.data),
            source_session_id=event.source_session_id,
            event_name=event.name,
            dedupe_key=event.event_id,
            state=None if event.sequence is None else {"sequence": event.sequence},
            cause=event.event_id,
            depth=event.depth + 1,
        )

    def _holds(self, name: str, source: str | None, data: Mapping[str, Any]) -> bool:
        facts = {"name": name, "source_session_id": source, "data": data}
        return self._condition is None or self._condition.holds(facts)
