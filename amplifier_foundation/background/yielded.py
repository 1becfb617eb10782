"""Check what a trigger yields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from types import NoneType

from amplifier_core.errors import TriggerError
from amplifier_core.triggers import TriggerEvent, TriggerType

_FIELDS: dict[str, tuple[type, ...]] = {
    "type": (TriggerType,),
    "timestamp": (datetime,),
    "data": (Mapping,),
    "file_path": (str, PurePath, NoneType),
    "state": (Mapping, NoneType),
    "state_changes": (Mapping, NoneType),
}
"""The fields that no store can take with values of other types."""


def check_event(module: str, event: object) -> None:
    """Raise `TriggerError` for anything but a `TriggerEvent` whose fields can be stored."""
    if not isinstance(event, TriggerEvent):
        raise TriggerError(module, f"it yields {type(event).__name__}, not TriggerEvent")
    for name, types in _FIELDS.items():
        if not isinstance(value := getattr(event, name), types):
            wanted, given = types[0].__name__, type(value).__name__
            raise TriggerError(module, f"it yields a TriggerEvent whose {name} is {given}, not {wanted}")
