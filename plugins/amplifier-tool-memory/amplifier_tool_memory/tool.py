"""Offer the notes of the project to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core import ModuleCoordinator, ToolResult
    from amplifier_core.permissions import Access

    from .notes import Note, Notes

MOST_NOTES = 10_000
"""Notes of a project, unless the configuration says otherwise."""
LISTED = 50
"""Notes in one answer, at most."""
FOUND = 10
"""Notes that a search returns without `limit`."""

_OF_OPERATION: dict[str, tuple[str, ...]] = {
    "save": ("title", "text", "tags"),
    "search": ("query", "limit"),
    "read": ("id",),
    "list": ("tag", "limit"),
    "update": ("id", "title", "text", "tags"),
    "delete": ("id",),
}
OPERATIONS = tuple(_OF_OPERATION)
_REQUIRED = {"save": ("title",), "search": ("query",), "list": ()}
_CHANGES = ("save", "update", "delete")
_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "description": "The number of a note.", "minimum": 1},
    "title": {"type": "string", "description": "One line that says what the note is about."},
    "text": {"type": "string", "description": "What to remember, at most 20,000 characters; update replaces it."},
    "tags": {"type": "array", "items": {"type": "string"}, "description": "Words to list it by."},
    "query": {"type": "string", "description": "search: words to look for; a note needs one of them."},
    "tag": {"type": "string", "description": "list: only notes with this tag."},
    "limit": {"type": "integer", "description": "At most so many notes.", "minimum": 1, "maximum": LISTED},
}
_ABOUT = (
    "Notes that outlive this session: facts, decisions and ways of working that a later session in this project needs. "
    "Search before you ask or begin anew; save what was hard to find out. Never save secrets. The fields of each "
    "operation: "
)


class MemoryTool:
    """Keeps notes; a failed call is a result with an error, never an exception."""

    name = "memory"

    def __init__(
        self, coordinator: ModuleCoordinator, allow: Sequence[str] = OPERATIONS, max_notes: int = MOST_NOTES
    ) -> None:
        self._coordinator = coordinator
        self._allowed = tuple(allow)
        self._most = max_notes
        shapes = "; ".join(f"{each}: {', '.join(_OF_OPERATION[each])}" for each in self._allowed)
        self.description = f"{_ABOUT}{shapes}."
        names = dict.fromkeys(name for operation in self._allowed for name in _OF_OPERATION[operation])
        self.input_schema = {
            "type": "object",
            "properties": {
                "operation": {"type": "string", "enum": list(self._allowed)},
                **{name: _FIELDS[name] for name in names},
            },
            "required": ["operation"],
            "additionalProperties": False,
        }

    async def describe_newest(self, number: int) -> None:
        """Add the titles of the newest notes to the description, but for notes whose text is not trusted."""
        documents = self._coordinator.get_capability("documents")
        if documents is None:
            return
        from .notes import Notes

        notes = Notes(documents)
        titles = [f"{note.id}: {note.title}" for note in await notes.find(limit=number) if not note.untrusted]
        if titles:
            self.description += f" The newest of the {await notes.count()} notes here: {'; '.join(titles)}."

    def accesses(self, arguments: Mapping[str, Any]) -> list[Access]:
        """Return the operation of a change, for rules such as `memory(delete)`. Reading reaches nothing."""
        from amplifier_core.permissions import Access

        operation = str(arguments.get("operation"))
        return [Access("other", operation)] if operation in _CHANGES else [Access("read", ".", form="harmless")]

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        """Carry out one operation; the `error` of a failed call has a `message` and a `type`."""
        from amplifier_core.models import ToolResult

        try:
            return ToolResult(output=await self._carry_out(input))
        except Exception as error:
            return ToolResult(success=False, error={"message": str(error), "type": type(error).__name__})

    async def _carry_out(self, given: Any) -> dict[str, Any]:
        from .notes import NoteError, Notes

        operation, fields = self._read_input(given)
        documents = self._coordinator.get_capability("documents")
        if documents is None:
            raise NoteError("the storage of this session keeps no notes; storage-sqlite does")
        gate = getattr(self._coordinator, "permissions", None)  # another kernel has none
        notes = Notes(documents, gate.untrusted if gate is not None else "", self._most)
        output: dict[str, Any] = await getattr(self, f"_{operation}")(notes, **fields)
        if gate is not None and notes.has_read_untrusted:
            gate.untrusted = gate.untrusted or "it has read a note with text of strangers"
        return output

    def _read_input(self, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the operation and its fields. Raises `NoteError`."""
        from .notes import NoteError, read_number

        if not isinstance(given, dict):
            raise NoteError(f"the input must be an object, not {type(given).__name__}")
        operation = given.get("operation")
        if operation not in self._allowed:
            raise NoteError(f"operation: {operation!r:.60} is none of {', '.join(self._allowed)}")
        known = _OF_OPERATION[operation]
        fields = {name: value for name, value in given.items() if name != "operation" and value is not None}
        for name, value in fields.items():
            if name not in known:
                raise NoteError(f"{operation} has no field '{name}'; it takes {', '.join(known)}")
            if name in ("query", "tag") and not isinstance(value, str):
                raise NoteError(f"{name}: must be text, not {type(value).__name__}")
            if name == "limit" and not (type(value) is int and 1 <= value <= LISTED):
                raise NoteError(f"limit: must be a number from 1 to {LISTED}, not {value!r:.60}")
        missing = [name for name in _REQUIRED.get(operation, ("id",)) if name not in fields]
        if missing:
            raise NoteError(f"{operation} needs '{missing[0]}'")
        return operation, {**fields, "id": read_number(fields["id"])} if "id" in fields else fields

    async def _save(self, notes: Notes, **given: Any) -> dict[str, Any]:
        return _report(await notes.save(**given), given)

    async def _search(self, notes: Notes, query: str, limit: int = FOUND) -> dict[str, Any]:
        found = await notes.search(query, limit)
        return {"notes": [{**_line(match.note), "snippet": match.snippet} for match in found]}

    async def _read(self, notes: Notes, id: int) -> dict[str, Any]:
        return {name: value for name, value in (await notes.get(id)).facts().items() if value or name == "text"}

    async def _list(self, notes: Notes, tag: str | None = None, limit: int = LISTED) -> dict[str, Any]:
        found = await notes.find(tag, limit)
        return {"notes": [_line(note) for note in found], "count": await notes.count()}

    async def _update(self, notes: Notes, id: int, **given: Any) -> dict[str, Any]:
        return _report(await notes.update(id, **given), given)

    async def _delete(self, notes: Notes, id: int) -> dict[str, Any]:
        return {**_line(await notes.delete(id)), "deleted": True}


def _line(note: Note) -> dict[str, Any]:
    tags = {"tags": note.tags} if note.tags else {}
    return {"id": note.id, "title": note.title, **tags, "updated": note.updated}


def _report(note: Note, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a stored note, and whether secrets in what was given are hidden in it."""
    from amplifier_core.utils.secrets import redact_all

    hidden = {"redacted": True} if redact_all(dict(given)) != given else {}
    return redact_all({**_line(note), **hidden})  # type: ignore[no-any-return]
