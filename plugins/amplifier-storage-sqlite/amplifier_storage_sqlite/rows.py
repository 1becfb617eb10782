"""Turn records, events and deliveries into rows: a column for each field, under the field's name."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from amplifier_core.events import SessionEvent
from amplifier_core.json_values import LateJson
from amplifier_core.storage import Delivery, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType

from .values import Column, dumps, loads, micros, moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Item = TypeVar("Item")

_TIMES = frozenset({"created", "updated", "available_at", "timestamp"})
_JSON = frozenset({"config", "metadata", "data"})
_OF_TRIGGER = frozenset({"state", "state_changes"})
"""Fields of an event with rows of their own, one for each key: its delivery does not grow with its trigger's state."""
_EVENT_FIELDS = tuple(field.name for field in fields(TriggerEvent) if field.name not in _OF_TRIGGER)
_KNOWN_FIELDS = frozenset(_EVENT_FIELDS)
_read_event = attrgetter(*_EVENT_FIELDS)
_TYPES = {kind.value: kind for kind in TriggerType}


class Table(Generic[Item]):
    """Convert the rows of one kind; `columns` are in the order of the dataclass's fields."""

    def __init__(self, kind: type[Item], without: str = "") -> None:
        self._kind = kind
        self.names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # kind is a dataclass
        self.columns = ", ".join(self.names)
        self._read = attrgetter(*self.names)
        self._encoders = [(name, _ENCODERS[name]) for name in self.names if name in _ENCODERS]
        self._plain = [name for name in self.names if name not in _ENCODERS]
        self._decoders = [(at, _DECODERS[name]) for at, name in enumerate(self.names) if name in _DECODERS]
        inserted = [name for name in self.names if name != without]
        self.insert = f"({', '.join(inserted)}) VALUES ({', '.join(':' + name for name in inserted)})"

    def row(self, item: Item) -> dict[str, Column]:
        """Return the columns for `insert`. Raises `TypeError` for a value without a stored form."""
        row: dict[str, Column] = dict(zip(self.names, self._read(item), strict=True))
        for name in self._plain:
            value = row[name]
            if value is not None and not (value.__class__ is str and value.isascii()):  # `plain`, without the call
                row[name] = plain(value, name)
        for name, encode_value in self._encoders:
            row[name] = encode_value(row[name])
        return row

    def item(self, row: Sequence[Any]) -> Item:
        """Return the item of a row of `columns`."""
        values = list(map(unplain, row) if bytes in map(type, row) else row)
        for at, decode in self._decoders:
            values[at] = decode(values[at])
        return self._kind(*values)


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause garbage collection: among thousands of new records it finds none, and takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def encode(values: Mapping[str, Any]) -> dict[str, Column]:
    """Return each value in the form of its column. Raises `TypeError` for a value without a stored form."""
    row: dict[str, Column] = {}
    for name, value in values.items():
        if (encode_value := _ENCODERS.get(name)) is not None:
            row[name] = encode_value(value)
        elif value is None or (value.__class__ is str and value.isascii()):  # `plain`, without the call
            row[name] = value
        else:
            row[name] = plain(value, name)
    return row


def new_delivery_id(now: datetime) -> str:
    """Return 32 hex digits: the ids of one hour lie together in the index, which may be larger than the memory."""
    return f"{int(now.timestamp()) >> 12 & 0xFFFF:04x}{os.urandom(14).hex()}"


class StateRows(NamedTuple):
    """Keys and values of a trigger's state: all of them, or with `merge` those that change, of which None go."""

    rows: Sequence[tuple[Column, Column]]
    merge: bool


def encode_state(state: Mapping[str, Any], *, merge: bool) -> StateRows:
    """Return the rows of a state. Raises `TypeError` for one that is not JSON."""
    gone = {key for key, value in state.items() if merge and value is None}
    rows = [
        (plain(key, "state"), None if key in gone else dumps(value, f"state.{key}")) for key, value in state.items()
    ]
    return StateRows(rows, merge)


def encode_trigger_event(event: TriggerEvent) -> Column:
    """Return the event as JSON, without its trigger's state."""
    values = dict(zip(_EVENT_FIELDS, _read_event(event), strict=True))
    values["type"], values["timestamp"] = event.type.value, event.timestamp.isoformat()
    return dumps(values, "event")


def decode_trigger_event(column: Any) -> TriggerEvent:
    """Return the event, equal to the encoded one but for its trigger's state."""
    values = loads(column)
    if values.keys() != _KNOWN_FIELDS:  # written by another version
        values = {name: values[name] for name in _EVENT_FIELDS if name in values}
    values["type"] = _TYPES[values["type"]]
    values["timestamp"] = datetime.fromisoformat(values["timestamp"])
    return TriggerEvent(**values)


def number_events(events: Sequence[SessionEvent], sequences: Sequence[int]) -> list[SessionEvent]:
    """Return logged events with their sequences."""
    numbered = []
    for event, sequence in zip(events, sequences, strict=True):  # not by `replace`, which takes twice as long
        where, when = event.source_session_id, event.timestamp
        facts = (event.name, event.data, where, when, event.event_id, event.cause, event.depth)
        numbered.append(SessionEvent(*facts, sequence, event.project))
    return numbered


_ENCODERS: dict[str, Callable[[Any], Column]] = {
    **dict.fromkeys(_TIMES, micros),
    **{name: partial(dumps, where=name) for name in _JSON},
    "event": encode_trigger_event,
}
_DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, moment),
    **dict.fromkeys(_JSON, loads),
    "config": partial(LateJson, loads),
    "event": decode_trigger_event,
}

SESSIONS = Table(SessionRecord)
EVENTS = Table(SessionEvent, without="sequence")
DELIVERIES = Table(Delivery)
