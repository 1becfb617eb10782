"""Offer the issues of the project to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.models import ToolResult
from amplifier_core.permissions import Access

from .issues import CLOSED, CREATED, LONGEST, STATUSES, UPDATED, Issue, IssueError, cut, read_number
from .tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ModuleCoordinator

    from .config import IssueConfig

LISTED = 50
"""Issues in one answer, at most."""
SHOWN = 20_000
"""Characters of a text in the answer to `show`, and of all comments together, at most."""
SHORT = 500
"""Characters of a reason in a list, at most."""

_EVENTS = {"create": CREATED, "update": UPDATED, "comment": UPDATED, "depend": UPDATED, "close": CLOSED}
_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "description": "The number of an issue.", "minimum": 1},
    "title": {"type": "string", "description": "One line.", "maxLength": LONGEST["title"]},
    "description": {"type": "string", "description": "What is to be done, and how one sees that it is done."},
    "type": {"type": "string", "description": "The kind of work, such as task, bug, feature, research or testing."},
    "priority": {"type": "integer", "description": "0 (the most urgent) to 4; 2 is usual.", "minimum": 0, "maximum": 4},
    "labels": {"type": "array", "items": {"type": "string"}},
    "status": {
        "type": "string",
        "enum": [*STATUSES, "blocked"],
        "description": "escalated: a person has to decide. list takes blocked, too; update does not.",
    },
    "reason": {"type": "string", "description": "Why it is escalated or opened again."},
    "text": {"type": "string", "description": "A comment."},
    "blocked_by": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "Issues that have to be closed first.",
    },
    "on": {"type": "integer", "description": "depend: the issue that has to be closed first.", "minimum": 1},
    "remove": {"type": "boolean", "description": "depend: wait for it no longer."},
    "label": {"type": "string", "description": "list: only issues with this label."},
    "ready": {"type": "boolean", "description": "list: only open issues that wait for no other."},
    "resolution": {"type": "string", "description": "close: completed, wontfix, duplicate or another word."},
    "result": {"type": "string", "description": "close: what came of it."},
}
_OF_OPERATION: dict[str, tuple[str, ...]] = {
    "create": ("title", "description", "type", "priority", "labels", "blocked_by"),
    "list": ("status", "type", "label", "ready"),
    "show": ("id",),
    "update": ("id", "title", "description", "type", "priority", "labels", "status", "reason"),
    "comment": ("id", "text"),
    "depend": ("id", "on", "remove"),
    "close": ("id", "resolution", "result"),
}
_TYPES = {"string": str, "boolean": bool}
_REQUIRED = {"create": ("title",), "comment": ("id", "text"), "depend": ("id", "on"), "list": ()}


class IssueTool:
    """Keeps issues; a failed call is a result with an error, never an exception."""

    name = "issue"

    def __init__(self, coordinator: ModuleCoordinator, config: IssueConfig) -> None:
        self._coordinator = coordinator
        self._allowed = config.allow
        names = dict.fromkeys(name for operation in config.allow for name in _OF_OPERATION[operation])
        shapes = "; ".join(f"{each}: {', '.join(_OF_OPERATION[each])}" for each in config.allow)
        self.description = (
            "Keep the issues of this project: pieces of work with a status, that wait for each other, and that "
            f"background workers take up by themselves. The fields of each operation: {shapes}."
        )
        self.input_schema = {
            "type": "object",
            "properties": {
                "operation": {"type": "string", "enum": list(config.allow)},
                **{name: _FIELDS[name] for name in names},
            },
            "required": ["operation"],
            "additionalProperties": False,
        }

    def accesses(self, arguments: Mapping[str, Any]) -> list[Access]:
        """Return the event of a change: it may wake workers. Reading reaches nothing."""
        event = _EVENTS.get(str(arguments.get("operation")))
        if event == UPDATED and arguments.get("status") == "closed":
            event = CLOSED
        return [Access("event", event)] if event is not None else [Access("read", ".", form="harmless")]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Carry out one operation; the `error` of a failed call has a `message` and a `type`."""
        try:
            operation, given = self._read_input(input)
            documents = self._coordinator.get_capability("documents")
            if documents is None:
                raise IssueError("the storage of this session keeps no issues; storage-sqlite does")
            gate = getattr(self._coordinator, "permissions", None)  # another kernel has none
            tracker = Tracker(documents, gate.untrusted if gate is not None else "")
            output = await getattr(self, f"_{operation}")(tracker, **given)
            if gate is not None and tracker.has_read_untrusted:
                gate.untrusted = gate.untrusted or "it has read an issue with text of strangers"
        except Exception as error:
            return ToolResult(success=False, error={"message": str(error), "type": type(error).__name__})
        return ToolResult(output=output)

    def _read_input(self, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the operation and its fields. Raises `IssueError`."""
        if not isinstance(given, dict):
            raise IssueError(f"the input must be an object, not {type(given).__name__}")
        operation = given.get("operation")
        if operation not in self._allowed:
            raise IssueError(f"operation: {operation!r} is none of {', '.join(self._allowed)}")
        fields = {name: value for name, value in given.items() if name != "operation" and value is not None}
        known = _OF_OPERATION[operation]
        unknown = [str(name) for name in fields if name not in known]
        if unknown:
            raise IssueError(f"{operation} has no field '{unknown[0]}'; it takes {', '.join(known)}")
        missing = [name for name in _REQUIRED.get(operation, ("id",)) if name not in fields]
        if missing:
            raise IssueError(f"{operation} needs '{missing[0]}'")
        for name, value in fields.items():
            kind = _FIELDS[name]["type"]
            if name in ("id", "on"):
                fields[name] = read_number(value)
            elif kind in _TYPES and not isinstance(value, _TYPES[kind]):
                raise IssueError(f"{name}: must be {_TYPES[kind].__name__}, not {type(value).__name__}")
        return operation, fields

    async def _create(self, tracker: Tracker, blocked_by: Any = (), **given: Any) -> dict[str, Any]:
        if not isinstance(blocked_by, list | tuple):
            raise IssueError("blocked_by: must be a list of numbers")
        numbers = [read_number(each) for each in blocked_by]
        return _line(await tracker.create(**given, blocked_by=numbers))

    async def _list(self, tracker: Tracker, status: str = "", type: str = "", **given: Any) -> dict[str, Any]:
        statuses, types = [each for each in (status,) if each], [each for each in (type,) if each]
        issues = await tracker.find(status=statuses, type=types, **given)
        listed = [_line(each) for each in issues[:LISTED]]
        return {"issues": listed, "count": len(issues), **({"cut": True} if len(issues) > LISTED else {})}

    async def _show(self, tracker: Tracker, id: int) -> dict[str, Any]:
        issue = await tracker.get(id)
        facts = {name: cut(value, SHOWN) if isinstance(value, str) else value for name, value in issue.facts().items()}
        said = await tracker.comments(id, LISTED)
        comments = [{**each, "text": cut(each["text"], SHOWN // len(said))} for each in said]
        return {**{name: value for name, value in facts.items() if value not in ("", [], {}, None)}, "said": comments}

    async def _update(self, tracker: Tracker, id: int, **given: Any) -> dict[str, Any]:
        return _line(await tracker.update(id, **given))

    async def _comment(self, tracker: Tracker, id: int, text: str) -> dict[str, Any]:
        call = self._coordinator.get_capability("tool.call")
        key = str((call() or {}).get("idempotency_key") or "") if call is not None else ""
        return _line(await tracker.comment(id, text, call=key))

    async def _depend(self, tracker: Tracker, id: int, on: int, **given: Any) -> dict[str, Any]:
        return _line(await tracker.depend(id, on, **given))

    async def _close(self, tracker: Tracker, id: int, **given: Any) -> dict[str, Any]:
        return _line(await tracker.close(id, **given))


def _line(issue: Issue) -> dict[str, Any]:
    """Return the facts of an issue for a list."""
    shown = {"id": issue.id, "title": issue.title, "type": issue.type, "priority": issue.priority, "state": issue.state}
    more = {
        "labels": issue.labels,
        "blocked_by": issue.blocked_by if issue.blocked else [],
        "reason": cut(issue.reason, SHORT),
    }
    return {**shown, **{name: value for name, value in more.items() if value}}
