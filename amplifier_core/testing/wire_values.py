"""Write the values of a store as JSON, and read them back in another process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from ..documents import Document, DocumentChange
from ..events import SessionEvent
from ..shared_stores import Bounds, Lease, Presence, SharedDelivery
from ..storage import Admission, Delivery, DeliveryCounts, Finding, Purged, SessionRecord
from ..triggers import TriggerEvent, TriggerType

_KIND = "@"
"""The member of an object that names its class; no check stores data with it."""
_CLASSES = (
    *(Admission, Bounds, Delivery, DeliveryCounts, Document, DocumentChange, Finding, Lease, Presence, Purged),
    *(SessionEvent, SessionRecord, SharedDelivery, TriggerEvent),
)
_MAKERS: dict[str, Any] = {
    **{each.__name__: each for each in _CLASSES},
    "datetime": lambda text: datetime.fromisoformat(text),
    "TriggerType": TriggerType,
}


def write_json(value: object) -> str:
    """Return one line of JSON. Raises `TypeError` for a value that no store takes or returns."""
    return json.dumps(value, default=_describe)


def read_json(text: str) -> Any:
    """Return the value that `write_json` wrote; tuples have become lists."""
    return json.loads(text, object_hook=_make)


def _describe(value: object) -> object:
    kind = type(value).__name__
    if isinstance(value, datetime):
        return {_KIND: "datetime", "text": value.isoformat()}
    if isinstance(value, TriggerType):
        return {_KIND: kind, "value": value.value}
    if is_dataclass(value) and kind in _MAKERS:
        return {_KIND: kind, **{each.name: getattr(value, each.name) for each in fields(value)}}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a store takes and returns no {kind}")


def _make(members: dict[str, Any]) -> Any:
    kind = members.pop(_KIND, None)
    return members if kind is None else _MAKERS[kind](**members)
