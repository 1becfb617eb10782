"""Make the time and the id of an event when somebody reads them.

An event that a router makes holds nanoseconds in the slot of its timestamp and nothing in the slot of its id. Most
events are never asked for either, and to make both takes as long as the rest of an event.
"""

from __future__ import annotations

import datetime
import os
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class EventDraft:
    """The slots of a `SessionEvent`, which may be set until `event.__class__ = SessionEvent` closes them.

    A frozen dataclass sets each field through `object.__setattr__`, which takes three times as long.
    """

    __slots__ = (
        "cause",
        "data",
        "depth",
        "event_id",
        "name",
        "project",
        "sequence",
        "source_session_id",
        "timestamp",
    )


read_moment: Callable[[Any], datetime.datetime | int] = EventDraft.timestamp.__get__  # type: ignore[attr-defined]
"""Return the timestamp of an event as it is kept: nanoseconds since 1970 where nobody has read it yet."""

_write_moment = EventDraft.timestamp.__set__  # type: ignore[attr-defined]
_read_id = EventDraft.event_id.__get__  # type: ignore[attr-defined]
_write_id = EventDraft.event_id.__set__  # type: ignore[attr-defined]
_making_id = Lock()
_unused_ids: list[str] = []
DRAWN = 256
"""Ids that are drawn at a time."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _timestamp(event: Any) -> datetime.datetime:
    moment = read_moment(event)
    if isinstance(moment, int):
        moment = _EPOCH + datetime.timedelta(microseconds=moment // 1_000)
        _write_moment(event, moment)  # two threads write equal times
    return moment


def _event_id(event: Any) -> str:
    try:
        return _read_id(event)  # type: ignore[no-any-return]
    except AttributeError:
        return _make_id(event)


def _make_id(event: Any) -> str:
    with _making_id:  # of two threads, the second finds the id of the first
        try:
            event_id: str = _read_id(event)
        except AttributeError:
            event_id = _draw_id()
            _write_id(event, event_id)
        return event_id


def new_event_id() -> str:
    """Return 32 random hexadecimal digits."""
    with _making_id:
        return _draw_id()


def _draw_id() -> str:
    """Return the next unused id; the caller holds the lock."""
    if not _unused_ids:  # many at once: the call of the system takes longer than the rest of an id
        digits = os.urandom(16 * DRAWN).hex()
        _unused_ids.extend(digits[start : start + 32] for start in range(0, len(digits), 32))
    return _unused_ids.pop()


def _begin_in_fork() -> None:
    """Give a forked process ids of its own, and a lock that no thread of its parent holds."""
    global _making_id
    _making_id = Lock()
    _unused_ids.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_fork)


late_timestamp = property(_timestamp, _write_moment, doc="When it happened: aware, in UTC.")
late_event_id = property(_event_id, _write_id, doc="32 hexadecimal digits of the router's, or what its maker chose.")
