"""Follow the events of issues, and fire for those that match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.log_triggers import LogTrigger
from amplifier_core.triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.conditions import Condition
    from amplifier_core.events import SessionEvent

NAME = "trigger-issue"

ISSUES = "issues"
"""The collection of documents with the issues of a project."""
LONGEST = 8_000
"""Characters of a text of an issue in an event, at most."""
_PREFIX = "issue:"
_READY = ("created", "updated", "unblocked")
"""The events after which an issue may be ready."""
_TURNED = frozenset({"status", "type", "labels"})
"""The facts whose change may make an issue ready for other workers."""


class IssueTrigger(LogTrigger):
    """A trigger by issues of its project; see `LogTrigger`.

    At the very first start it fires for the issues that are ready already, if it fires for ready ones at all.
    """

    name = NAME
    no_events = "there are no issues to follow here; run the bundle with: amplifier up"
    names: Sequence[str] = (f"{_PREFIX}*",)

    def __init__(self) -> None:
        super().__init__()
        self._condition: Condition | None = None
        self._project = ""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import IssueTriggerConfig

        return IssueTriggerConfig.model_json_schema()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the filters. Raises `TriggerConfigError`."""
        from amplifier_core.conditions import Condition
        from amplifier_core.trigger_config import read_trigger_config

        from .config import IssueTriggerConfig

        self._config = read_trigger_config(NAME, IssueTriggerConfig, config)
        self._project = str(self.context.working_dir.resolve())
        self._condition = None if self._config.condition is None else Condition.parse(self._config.condition)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for an event that fires, else the reason against it."""
        if event.type not in (TriggerType.ISSUE_EVENT, TriggerType.SESSION_EVENT):
            return f"it fires on events of issues, and this is a {event.type.value} event"
        return self._find_reason(event.event_name or "", event.source_session_id, event.data)

    def read(self, event: SessionEvent) -> TriggerEvent | None:
        """Return the event to wake with; None for an issue of another project, and for one that does not match."""
        if event.project not in (None, self._project):
            return None
        if self._find_reason(event.name, event.source_session_id, event.data) is not None:
            return None
        return self._make_event(
            event.name,
            event.source_session_id,
            event.data,
            state=None if event.sequence is None else {"sequence": event.sequence},
            cause=event.event_id,
            depth=_depth_of(event),
        )

    async def look_back(self) -> Sequence[TriggerEvent]:
        """Return an event for each issue that is ready now."""
        if self.context.documents is None or "ready" not in self._config.events:
            return ()
        missed = []
        for document in await self.context.documents.find(ISSUES, where={"status": ["open"]}):
            issue = {name: _cut(value) for name, value in document.data.items()}
            data = {"issue_id": str(issue.get("id")), **issue, "state": "open", "changed": []}
            name, source = f"{_PREFIX}created", issue.get("created_by")
            if not issue.get("blocked") and self._find_reason(name, source, data) is None:
                missed.append(self._make_event(name, source, data, depth=int(issue.get("depth") or 0) + 1))
        return missed

    def _make_event(self, name: str, source: str | None, data: Mapping[str, Any], **facts: Any) -> TriggerEvent:
        """Return the event of one state of an issue: one that was ready at the start is not handled twice."""
        return TriggerEvent(
            TriggerType.ISSUE_EVENT,
            NAME,
            timestamp=self.context.clock.now(),
            data=dict(data),
            source_session_id=source,
            event_name=name,
            dedupe_key=f"{data.get('issue_id')}@{data.get('updated')}",
            **facts,
        )

    def _find_reason(self, name: str, source: str | None, data: Mapping[str, Any]) -> str | None:
        """Return None for an issue that fires, else the reason against it."""
        config, kind, labels = self._config, name.removeprefix(_PREFIX), _texts(data.get("labels"))
        type = data.get("type")
        if kind not in config.events and not ("ready" in config.events and _becomes_ready(kind, data)):
            return f"its events are {', '.join(config.events)}, and this is {name or 'without a name'}"
        if (config.types is not None and type not in config.types) or type in config.except_types:
            return f"the issue is of the type {type}"
        if config.status is not None and data.get("status") not in config.status:
            return f"the issue is {data.get('status')}, and status is {', '.join(config.status)}"
        if config.labels is not None and not labels & set(config.labels):
            return f"the issue has none of the labels {', '.join(config.labels)}"
        if excluded := labels & set(config.except_labels):
            return f"the issue has the label {', '.join(sorted(excluded))}"
        facts = {"name": name, "source_session_id": source, "data": data}
        if self._condition is not None and not self._condition.holds(facts):
            return f"its 'if' does not hold: {config.condition}"
        return None


def _becomes_ready(kind: str, data: Mapping[str, Any]) -> bool:
    if kind not in _READY or data.get("status") != "open" or data.get("blocked"):
        return False
    return kind != "updated" or not _TURNED.isdisjoint(_texts(data.get("changed")))


def _texts(value: Any) -> set[str]:
    """Return the texts of a list. Any session may emit an event with the name of these: another value has none."""
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _depth_of(event: SessionEvent) -> int:
    """Return the length of the chain of causes: that of the issue, unless it is new.

    The work on one issue unblocks another, which is no loop, however many wait for each other.
    """
    depth = event.data.get("depth")
    return (depth if isinstance(depth, int) and depth >= 0 and event.name != f"{_PREFIX}created" else event.depth) + 1


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= LONGEST:
        return value
    return f"{value[:LONGEST]}\n(cut; the issue has {len(value):,} characters)"
