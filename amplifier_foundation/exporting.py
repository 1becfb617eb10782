"""One session as text: JSON lines for programs, Markdown for people."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .runners import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

SCHEMA = "amplifier/session.export/1"


def json_lines(record: SessionRecord, messages: Sequence[Message]) -> Iterator[str]:
    """Yield a line with the session's record, then one for each message, under its id."""
    yield _json({"schema": SCHEMA, "session": asdict(record)})
    for number, message in enumerate(messages, 1):
        yield _json({"id": f"m{number}", "message": message})


def markdown(record: SessionRecord, messages: Sequence[Message]) -> Iterator[str]:
    """Yield the lines of a document with a heading for each message."""
    yield f"# {record.name or record.session_id}"
    yield ""
    yield f"Session `{record.session_id}`, {record.status}, {_moment(record.created)} to {_moment(record.updated)}."
    for number, message in enumerate(messages, 1):
        yield f"\n## m{number} {title_of(message)}\n"
        yield from _body(message)


def title_of(message: Message) -> str:
    """Return who speaks: the role, and for a result the tool."""
    role = str(message.get("role"))
    return f"{role} {message['name']}" if role == "tool" and message.get("name") else role


def call_line(call: Mapping[str, Any]) -> str:
    """Return a tool call in one line."""
    return f"→ {call.get('tool')} {json.dumps(call.get('arguments'), ensure_ascii=False, default=str)}"


def _body(message: Message) -> Iterator[str]:
    text = text_of(message)
    if text and message.get("role") == "tool":
        yield fenced(text)
    elif text:
        yield text
    for call in message.get("tool_calls") or ():
        yield fenced(call_line(call))


def fenced(text: str) -> str:
    """Return text as a code block that nothing in it can end."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return _moment(value) if isinstance(value, datetime) else str(value)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
