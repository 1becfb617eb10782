"""How records, events and deliveries lie in rows: a column for each field, under the field's name."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amplifier_core.events import SessionEvent
from amplifier_core.storage import Delivery, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType

from .values import Column, dumps, loads, micros, moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Item = TypeVar("Item")

_TIMES = frozenset({"created", "updated", "available_at", "timestamp"})
_JSON = frozenset({"config", "metadata", "data"})
_EVENT_FIELDS = tuple(field.name for field in fields(TriggerEvent))


class Table(Generic[Item]):
    """The rows of one kind; `columns` in the order of the dataclass's fields."""

    def __init__(self, kind: type[Item], without: str = "") -> None:
        self._kind = kind
        self.names = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # kind is a dataclass
        self.columns = ", ".join(self.names)
        self._decoders = [(at, _DECODERS[name]) for at, name in enumerate(self.names) if name in _DECODERS]
        inserted = [name for name in self.names if name != without]
        self.insert = f"({', '.join(inserted)}) VALUES ({', '.join(':' + name for name in inserted)})"

    def row(self, item: Item) -> dict[str, Column]:
        """Return the columns that `insert` takes. Raises `TypeError` for what cannot be stored."""
        return encode({name: getattr(item, name) for name in self.names})

    def item(self, row: Sequence[Any]) -> Item:
        """Return what was stored in a row of `columns`."""
        values = list(map(unplain, row) if bytes in map(type, row) else row)
        for at, decode in self._decoders:
            values[at] = decode(values[at])
        return self._kind(*values)


def encode(values: Mapping[str, Any]) -> dict[str, Column]:
    """Return each value as the column of its name holds it. Raises `TypeError` for what cannot be stored."""
    return {name: _encoded(name, value) for name, value in values.items()}


def encode_trigger_event(event: TriggerEvent) -> Column:
    """Return the event as JSON."""
    values = {name: getattr(event, name) for name in _EVENT_FIELDS}
    return dumps({**values, "type": event.type.value, "timestamp": event.timestamp.isoformat()}, "event")


def decode_trigger_event(column: Any) -> TriggerEvent:
    """Return an event equal to the one that was encoded."""
    values = loads(column)
    known = {name: values[name] for name in _EVENT_FIELDS if name in values}
    known |= {"type": TriggerType(known["type"]), "timestamp": datetime.fromisoformat(known["timestamp"])}
    return TriggerEvent(**known)


def _encoded(name: str, value: Any) -> Column:
    if name in _TIMES:
        return micros(value)
    if name in _JSON:
        return dumps(value, name)
    return encode_trigger_event(value) if name == "event" else plain(value, name)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, moment),
    **dict.fromkeys(_JSON, loads),
    "event": decode_trigger_event,
}

SESSIONS = Table(SessionRecord)
EVENTS = Table(SessionEvent, without="sequence")
DELIVERIES = Table(Delivery)
