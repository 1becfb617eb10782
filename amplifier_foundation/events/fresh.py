"""Making events, which is most of the work of publishing them."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIELDS = tuple(field.name for field in fields(SessionEvent))
_slots: dict[str, Any] = {name: getattr(SessionEvent, name) for name in FIELDS}


class _FreshEvent(SessionEvent):
    """A `SessionEvent` until somebody asks for its id or its timestamp, which few do: then they are made, for good."""

    __slots__ = ()

    @property
    def timestamp(self) -> datetime:
        """When it was emitted."""
        return _finished(self).timestamp

    @property
    def event_id(self) -> str:
        """Its id."""
        return _finished(self).event_id

    def __eq__(self, other: object) -> bool:
        return _finished(self) == other

    def __hash__(self) -> int:
        return hash(_finished(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _finished(self).__reduce_ex__(protocol)


def _finished(event: SessionEvent) -> SessionEvent:
    if event.__class__ is _FreshEvent:
        seconds = _slots["timestamp"].__get__(event)
        _slots["timestamp"].__set__(event, datetime.fromtimestamp(seconds, UTC))
        _slots["event_id"].__set__(event, token_hex(16))
        object.__setattr__(event, "__class__", SessionEvent)
    return event


class _Draft:
    """A `SessionEvent` while its fields are set: those of a frozen one take four times as long."""

    __slots__ = FIELDS

    def __init__(
        self,
        name: str,
        data: Mapping[str, Any],
        source_session_id: str | None,
        seconds: float,
        cause: str | None,
        depth: int,
        sequence: int,
    ) -> None:
        self.name = name
        self.data = data
        self.source_session_id = source_session_id
        self.timestamp = seconds
        self.cause = cause
        self.depth = depth
        self.sequence = sequence
        self.__class__ = _FreshEvent  # type: ignore[assignment]  # the same slots, closed from here on


fresh_event = cast("Callable[[str, Mapping[str, Any], str | None, float, str | None, int, int], SessionEvent]", _Draft)
"""Return an event of its name, data, source, time (seconds since 1970, UTC), cause, depth and sequence."""
