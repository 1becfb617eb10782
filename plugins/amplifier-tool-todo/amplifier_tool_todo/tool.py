"""Keep the list of a session's tasks: the last call that changed it holds the whole list."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from amplifier_core.models import HookResult, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core import ModuleCoordinator

NAME = "todo"
STATUSES = ("pending", "in_progress", "completed")
MOST_TASKS, LONGEST_TASK = 200, 1_000
"""Tasks of a list, and characters of each text of a task."""
_CHANGES = {"create": "created", "update": "updated"}
"""What changes the list: the action, and the status of its result."""
_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TASK}
_TASK = {
    "type": "object",
    "properties": {
        "content": {**_TEXT, "description": "What to do, such as 'Run the tests'."},
        "status": {"type": "string", "enum": list(STATUSES)},
        "activeForm": {**_TEXT, "description": "The same while it is done, such as 'Running the tests'."},
    },
    "required": ["content", "status"],
    "additionalProperties": False,
}


class TodoError(ValueError):
    """The input of a call is no list of tasks; the text says what to do."""


class TodoTool:
    """Keeps the list; a failed call is a result with an error, never an exception."""

    name = NAME
    description = (
        "Keep the list of your tasks for work of several steps. 'create' and 'update' take the whole list, 'list' "
        "returns it. Have exactly one task in_progress while you work, and set it to completed as soon as it is done."
    )

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._is_restored = False
        self.input_schema = {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": [*_CHANGES, "list"]},
                "todos": {
                    "type": "array",
                    "items": _TASK,
                    "maxItems": MOST_TASKS,
                    "description": "create and update: every task, the finished ones too, in their order.",
                },
            },
            "required": ["action"],
            "additionalProperties": False,
        }
        self._set([])

    def accesses(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return an access without effect: a call changes nothing beside the history of its own session."""
        from amplifier_core.permissions import Access

        return [Access("read", ".", form="harmless")]

    async def restore(self, event: str, data: dict[str, Any]) -> HookResult:
        """Set the list to that of the history, once: from then on the calls set it."""
        if not self._is_restored:
            self._is_restored = True
            self._set(find_tasks(await self._read_history()))
        return HookResult()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Change the list or return it; the `error` of a failed call has a `message` and a `type`."""
        await self.restore("", {})
        try:
            action, tasks = _read_input(input)
        except TodoError as error:
            return ToolResult(success=False, error={"message": str(error), "type": "InvalidInput"})
        if action == "list":
            return ToolResult(output={"status": "listed", "count": len(self._tasks), "todos": self._tasks})
        self._set(tasks)
        counts = {status: sum(task["status"] == status for task in tasks) for status in STATUSES}
        return ToolResult(output={"status": _CHANGES[action], "count": len(tasks), **counts})

    @property
    def _tasks(self) -> list[dict[str, str]]:
        return list(getattr(self._coordinator, "todo_state", None) or ())

    def _set(self, tasks: list[dict[str, str]]) -> None:
        self._coordinator.todo_state = tasks  # type: ignore[attr-defined]

    async def _read_history(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages of the session; another kernel has those of the context alone."""
        transcript = self._coordinator.get_capability("session.transcript")
        context = self._coordinator.get("context")
        if transcript is not None or context is None:
            return transcript or ()
        messages: Sequence[Mapping[str, Any]] = await context.get_messages()
        return messages


def find_tasks(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the tasks of the last call in a history that changed the list; a call without its result did not."""
    done: set[Any] = set()
    for message in reversed(messages):
        if message.get("role") == "tool" and message.get("name", NAME) == NAME and has_changed(message):
            done.add(message.get("tool_call_id"))
        for call_id, given in calls_in(message) if done else ():
            if call_id in done:
                try:
                    return _read_input(given)[1]
                except TodoError:  # the call of another tool with the same name
                    continue
    return []


def has_changed(message: Mapping[str, Any]) -> bool:
    """Return whether the result of a call says that it has changed the list."""
    content = message.get("content")
    try:
        result = json.loads(content) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return False
    return isinstance(result, dict) and result.get("status") in _CHANGES.values()


def calls_in(message: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the calls of the tool in a message, the last one first: their ids and arguments."""
    for call in reversed(message.get("tool_calls") or ()):
        if NAME in (call.get("tool"), call.get("name")):
            yield call.get("id"), call.get("arguments")


def _read_input(given: Any) -> tuple[str, list[dict[str, str]]]:
    """Return the action and the tasks. Raises `TodoError`."""
    if not isinstance(given, dict):
        raise TodoError(f"the input must be an object, not {type(given).__name__}")
    _refuse_unknown(given, ("action", "todos"))
    action, tasks = given.get("action"), given.get("todos")
    if action == "list":
        return action, []
    if action not in tuple(_CHANGES):
        raise TodoError(f"'action' must be create, update or list, not {action!r:.60}")
    if not isinstance(tasks, list):
        raise TodoError(f"{action} needs 'todos', the list of all tasks")
    if len(tasks) > MOST_TASKS:
        raise TodoError(f"{len(tasks)} tasks are too many, {MOST_TASKS} are allowed; put small ones together")
    checked = [check_task(place, task) for place, task in enumerate(tasks)]
    running = [place for place, task in enumerate(checked) if task["status"] == "in_progress"]
    if len(running) > 1:
        places = ", ".join(map(str, running))
        raise TodoError(f"tasks {places} are in_progress; only one may be, set the others to pending")
    return action, checked


def check_task(place: int, task: Any) -> dict[str, str]:
    """Return a task with all of its texts. Raises `TodoError`."""
    if not isinstance(task, dict):
        raise TodoError(f"todos[{place}] must be an object with content and status, not {type(task).__name__}")
    _refuse_unknown(task, tuple(_TASK["properties"]), f"todos[{place}]: ")  # type: ignore[arg-type]
    if task.get("status") not in STATUSES:
        raise TodoError(f"todos[{place}]: 'status' must be {', '.join(STATUSES)}, not {task.get('status')!r:.60}")
    checked = {"content": task.get("content"), "status": task["status"], "activeForm": task.get("activeForm")}
    checked["activeForm"] = checked["activeForm"] or checked["content"]
    for name, text in checked.items():
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_TASK:
            raise TodoError(f"todos[{place}]: '{name}' must be a text of 1 to {LONGEST_TASK} characters")
    return checked


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str], place: str = "") -> None:
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
            raise TodoError(f"{place}unknown field '{name:.60}'; {hint}")
