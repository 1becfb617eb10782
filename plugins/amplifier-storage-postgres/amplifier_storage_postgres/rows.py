"""Turn records, events and deliveries into rows: a column for each field, under the field's name."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amplifier_core.documents import Document
from amplifier_core.events import SessionEvent
from amplifier_core.json_values import LateJson
from amplifier_core.shared_stores import SharedDelivery
from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType

from .values import Column, dumps, loads, micros, moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .projects import Projects

Item = TypeVar("Item")

_TIMES = frozenset({"created", "updated", "available_at", "timestamp"})
_JSON = frozenset({"config", "metadata", "data"})
_OF_TRIGGER = frozenset({"state", "state_changes"})
"""Fields of an event with rows of their own, one for each key: its delivery does not grow with its trigger's state."""
_EVENT_FIELDS = tuple(field.name for field in fields(TriggerEvent) if field.name not in _OF_TRIGGER)
_TYPES = {kind.value: kind for kind in TriggerType}


class Table(Generic[Item]):
    """Convert the rows of one kind; `columns` are in the order of the dataclass's fields."""

    def __init__(self, kind: type[Item]) -> None:
        self._kind = kind
        self.names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # kind is a dataclass
        self.columns = ", ".join(f'"{name}"' for name in self.names)
        self._decoders = [(at, _DECODERS[name]) for at, name in enumerate(self.names) if name in _DECODERS]
        self._project = self.names.index("project")

    def row(self, item: Item, projects: Projects) -> dict[str, Any]:
        """Return the columns. Raises `TypeError` for a value without a stored form."""
        return encode({name: getattr(item, name) for name in self.names}, projects)

    def item(self, row: Sequence[Any], projects: Projects) -> Item:
        """Return the item of a row of `columns`."""
        values = list(map(unplain, row))
        if values[self._project] is not None:
            values[self._project] = projects.to_local(values[self._project])
        for at, decode in self._decoders:
            values[at] = decode(row[at])
        return self._kind(*values)

    def items(self, rows: Sequence[Sequence[Any]], projects: Projects) -> list[Item]:
        """Return the items of rows."""
        return [self.item(row, projects) for row in rows]


def encode(values: Mapping[str, Any], projects: Projects) -> dict[str, Any]:
    """Return each value in the form of its column. Raises `TypeError` for a value without a stored form."""
    encoded = {
        name: _ENCODERS[name](value) if name in _ENCODERS else plain(value, name) for name, value in values.items()
    }
    project = encoded.get("project")
    if isinstance(project, str):
        encoded["project"] = projects.to_stored(project)
    return encoded


def encode_state(state: Mapping[str, Any] | None, *, merge: bool) -> list[tuple[Column, Column]]:
    """Return keys and values of a trigger's state; with `merge`, None for those to delete. Raises `TypeError`."""
    return [
        (plain(key, "state"), None if merge and value is None else dumps(value, f"state.{key}"))
        for key, value in (state or {}).items()
    ]


def encode_trigger_event(event: TriggerEvent) -> str:
    """Return the event as JSON, without its trigger's state."""
    values = {name: getattr(event, name) for name in _EVENT_FIELDS}
    return dumps({**values, "type": event.type.value, "timestamp": event.timestamp.isoformat()}, "event")


def decode_trigger_event(column: Any) -> TriggerEvent:
    """Return the event, equal to the encoded one but for its trigger's state."""
    values = loads(column)
    values = {name: values[name] for name in _EVENT_FIELDS if name in values}
    values["type"] = _TYPES[values["type"]]
    values["timestamp"] = datetime.fromisoformat(values["timestamp"])
    return TriggerEvent(**values)


def number_events(events: Sequence[SessionEvent], sequences: Sequence[int]) -> list[SessionEvent]:
    """Return logged events with their sequences."""
    return [replace(event, sequence=sequence) for event, sequence in zip(events, sequences, strict=True)]


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, micros),
    **{name: partial(dumps, where=name) for name in _JSON},
    "event": encode_trigger_event,
    "owners": list,
}
_DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, moment),
    **dict.fromkeys(_JSON, loads),
    "config": partial(LateJson, loads),
    "event": decode_trigger_event,
    "owners": tuple,
}

SESSIONS = Table(SessionRecord)
EVENTS = Table(SessionEvent)
DELIVERIES = Table(SharedDelivery)
DOCUMENTS = Table(Document)
