"""Make events fast: an event takes a third of the time that the constructor of a frozen dataclass needs."""

from __future__ import annotations

from dataclasses import fields
from random import getrandbits
from typing import TYPE_CHECKING, Any

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class _Draft:
    """A `SessionEvent` while its fields are set.

    A frozen dataclass sets each field through `object.__setattr__`. Both classes have the same slots, so the draft may
    become an event; it is frozen from then on.
    """

    __slots__ = tuple(field.name for field in fields(SessionEvent))
    if TYPE_CHECKING:  # `__slots__` says no types

        def __setattr__(self, name: str, value: Any) -> None: ...


def new_event(
    name: str,
    data: Mapping[str, Any],
    source_session_id: str | None,
    timestamp: datetime,
    cause: str | None,
    depth: int,
    sequence: int,
    project: str | None,
) -> SessionEvent:
    """Return an event with a random id."""
    event = _Draft()  # without a constructor: to call one takes as long as to set the fields here
    event.name = name
    event.data = data
    event.source_session_id = source_session_id
    event.timestamp = timestamp
    event.event_id = getrandbits(128).to_bytes(16, "little").hex()  # twice as fast as formatting the number
    event.cause = cause
    event.depth = depth
    event.sequence = sequence
    event.project = project
    event.__class__ = SessionEvent  # type: ignore[assignment]
    return event  # type: ignore[return-value]
