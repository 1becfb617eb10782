"""Write events as messages, and read messages of other sites, which may say anything."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.events import SessionEvent
from amplifier_core.log_triggers import OF_SITE
from amplifier_core.permissions.hidden import is_printable

from ..events.names import ROUTER
from . import OWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..hookspecs import Message

VERSION = 1
LONGEST_NAME = 200
DEEPEST = 1_000_000
"""The largest depth: no real chain of events is so long."""
OUTSIDE = "outside"
"""Stands for the session of an event that a program of the other site has emitted."""

NESTED = 100
"""Levels of lists and mappings in the data of an event, at most: deeper ones end the stack of those who read them."""

_SITE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SOURCE = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class UnreadableMessage(ValueError):
    """A message is no event that this version can read; the text says why."""


class Letter(NamedTuple):
    """The content of a message; `store` is the id of the store that sent it."""

    event: SessionEvent
    store: str


def encode(event: SessionEvent, store: str) -> bytes:
    """Return the body of a message: without the folder of the project, which means nothing elsewhere.

    Raises `ValueError` for data without a JSON form.
    """
    values = {
        "name": event.name,
        "data": event.data,
        "source_session_id": event.source_session_id,
        "timestamp": event.timestamp.isoformat(),
        "event_id": event.event_id,
        "cause": event.cause,
        "depth": event.depth,
    }
    return json.dumps({"version": VERSION, "store": store, "event": values}, allow_nan=False).encode()


def decode(message: Message, now: datetime) -> Letter:
    """Return the event of a message as it goes into the log. Raises `UnreadableMessage`.

    Its project is `site:SITE`, and its session `SITE.ID`: neither is ever taken for one of this store. An event of the
    future happens `now`, for retention counts by its time.
    """
    try:
        values = json.loads(message.body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UnreadableMessage("it is not JSON") from None
    _require(isinstance(values, dict), "it is not a JSON object")
    _require(_is_flat(values), f"it has more than {NESTED} levels")
    _require(_is_text(_SITE, message.site), "its site has no name of one")
    _require(values.get("version") == VERSION, f"its version is {values.get('version')!r:.40}, not {VERSION}")
    event = values.get("event")
    _require(isinstance(event, dict), "it has no event")
    _require(event.get("name") == message.name, f"its event is not '{message.name:.60}'")
    _require(len(message.name) <= LONGEST_NAME and is_printable(message.name), "the name of its event is no name")
    _require(not message.name.startswith((OWN, ROUTER)), "no site sends events about its transports and its router")
    _require(isinstance(event.get("data"), dict), "the data of its event is not a JSON object")
    _require(_is_text(_ID, event.get("event_id")), "its event_id is no id")
    _require(event.get("cause") is None or _is_text(_ID, event["cause"]), "its cause is no id")
    source = event.get("source_session_id")
    _require(source is None or _is_text(_SOURCE, source), "its source_session_id is no id")
    depth = event.get("depth")
    _require(type(depth) is int and 0 <= depth <= DEEPEST, "its depth is no number from 0")
    return Letter(
        SessionEvent(
            message.name,
            event["data"],
            f"{message.site}.{source or OUTSIDE}",
            min(_time(event.get("timestamp")), now),
            event["event_id"],
            event.get("cause"),
            depth,
            project=f"{OF_SITE}{message.site}",
        ),
        str(values.get("store")),
    )


def _is_flat(value: Any) -> bool:
    """Return whether a value has at most `NESTED` levels."""
    level = [value]
    for _ in range(NESTED):
        level = [each for item in level if isinstance(item, dict | list) for each in _parts(item)]
    return not level


def _parts(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


def _require(fits: bool, problem: str) -> None:
    if not fits:
        raise UnreadableMessage(problem)


def _is_text(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _refuse_constant(text: str) -> None:
    raise ValueError(text)


def _time(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnreadableMessage("its timestamp is no time") from None
    _require(found.tzinfo is not None, "its timestamp has no time zone")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise UnreadableMessage("its timestamp is no time") from None
