"""Check what a trigger yields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from types import NoneType

from amplifier_core.errors import TriggerError
from amplifier_core.json_values import to_json
from amplifier_core.polling import PollingTrigger
from amplifier_core.triggers import TriggerEvent, TriggerType

_FIELDS: dict[str, tuple[type, ...]] = {
    "type": (TriggerType,),
    "source": (str,),
    "timestamp": (datetime,),
    "data": (Mapping,),
    "file_path": (str, PurePath, NoneType),
    "source_session_id": (str, NoneType),
    "event_id": (str,),
    "state": (Mapping, NoneType),
    "cause": (str, NoneType),
    "depth": (int,),
    "state_changes": (Mapping, NoneType),
}
"""The fields that no store, or no reader of it, can take with values of other types."""

_JSON = ("data", "state", "state_changes")


def check_event(module: str, event: object, stream: object) -> None:
    """Raise `TriggerError` for anything but a `TriggerEvent` with fields for a store; `stream` has yielded it."""
    if not isinstance(event, TriggerEvent):
        raise TriggerError(module, f"it yields {type(event).__name__}, not TriggerEvent{_find_yield(stream)}")
    for name, types in _FIELDS.items():
        if not isinstance(value := getattr(event, name), types):
            wanted, given = types[0].__name__, type(value).__name__
            problem = f"it yields a TriggerEvent whose {name} is {given}, not {wanted}{_find_yield(stream)}"
            raise TriggerError(module, problem)


def require_json(event: TriggerEvent, stream: object) -> None:
    """Raise `TypeError` for an event with values other than JSON: it names the value, and the line of the `yield`."""
    for name in _JSON:
        try:
            to_json(getattr(event, name), f"event.{name}")
        except TypeError as error:
            raise TypeError(f"{error}{_find_yield(stream)}") from None


def _find_yield(stream: object) -> str:
    """Return ` (FILE:LINE)` of the `yield` of a waiting generator; "" for another iterator."""
    frame = getattr(stream, "ag_frame", None)
    if frame is not None and frame.f_code is PollingTrigger.watch.__code__:  # it passes on what `poll` yields
        frame = getattr(frame.f_locals["events"], "ag_frame", None)
    return "" if frame is None else f" ({frame.f_code.co_filename}:{frame.f_lineno})"
