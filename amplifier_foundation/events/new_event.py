"""Make events fast: an event takes a quarter of the time that the constructor of a frozen dataclass needs."""

from __future__ import annotations

from dataclasses import fields
from random import getrandbits
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime


class _Draft:
    """A `SessionEvent` while its fields are set.

    A frozen dataclass sets each field through `object.__setattr__`: 3.1 µs for an event, and 0.9 µs this way. Both
    classes have the same slots, so the draft may become an event; it is frozen from then on.
    """

    __slots__ = tuple(field.name for field in fields(SessionEvent))

    def __init__(
        self,
        name: str,
        data: Mapping[str, Any],
        source_session_id: str | None,
        timestamp: datetime,
        cause: str | None,
        depth: int,
        sequence: int,
        project: str | None,
    ) -> None:
        self.name = name
        self.data = data
        self.source_session_id = source_session_id
        self.timestamp = timestamp
        self.event_id = f"{getrandbits(128):032x}"
        self.cause = cause
        self.depth = depth
        self.sequence = sequence
        self.project = project
        self.__class__ = SessionEvent  # type: ignore[assignment]


new_event = cast(
    "Callable[[str, Mapping[str, Any], str | None, datetime, str | None, int, int, str | None], SessionEvent]", _Draft
)
"""Return an event with a random id, of this name, data, source, timestamp, cause, depth, sequence and project."""
