"""Make events fast: an event takes a third of the time that the constructor of a frozen dataclass needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.events import SessionEvent
from amplifier_core.late_fields import EventDraft

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


def new_event(
    name: str,
    data: Mapping[str, Any],
    source_session_id: str | None,
    timestamp: datetime | int,
    event_id: str,
    cause: str | None,
    depth: int,
    sequence: int | None,
    project: str | None,
) -> SessionEvent:
    """Return what `SessionEvent` returns for these fields."""
    event: Any = EventDraft()  # without a constructor: to call one takes as long as to set the fields here
    event.name = name
    event.data = data
    event.source_session_id = source_session_id
    event.timestamp = timestamp
    event.event_id = event_id
    event.cause = cause
    event.depth = depth
    event.sequence = sequence
    event.project = project
    event.__class__ = SessionEvent
    return event  # type: ignore[no-any-return]
