"""Export a session as text, without secrets: JSON lines for programs, Markdown for people."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.utils.secrets import redact_text

from ..documents.json_text import dump_json, redact_json
from ..documents.times import format_time
from .history import describe_fallback, text_of
from .presence import status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

SCHEMA = "amplifier/session.export/1"


def json_lines(record: SessionRecord, messages: Sequence[Message]) -> Iterator[str]:
    """Yield a line with the session's record, then one for each message, under its id."""
    yield _to_json({"schema": SCHEMA, "session": asdict(record)})
    for number, message in enumerate(messages, 1):
        yield _to_json({"id": f"m{number}", "message": message})


def markdown(record: SessionRecord, messages: Sequence[Message]) -> Iterator[str]:
    """Yield the lines of a document with a heading for each message."""
    yield f"# {redact_text(record.name) or record.session_id}"
    yield ""
    created, updated = format_time(record.created), format_time(record.updated)
    yield f"Session `{record.session_id}`, {status_of(record)}, {created} to {updated}."
    for number, message in enumerate(messages, 1):
        yield f"\n## m{number} {redact_text(title_of(message))}\n"
        text = text_of(message)
        if text:
            text = redact_text(text)
            yield fence(text) if message.get("role") == "tool" else text
        for call in message.get("tool_calls") or ():
            yield fence(redact_text(call_line(call)))


def title_of(message: Message) -> str:
    """Return the author of a message: its role; of a result the tool, and the provider that stood in for another."""
    role = str(message.get("role"))
    if role == "tool" and message.get("name"):
        return f"{role} {message['name']}"
    fallback = describe_fallback(message)
    return f"{role} ({fallback}: {message['metadata']['fallback'].get('reason')})" if fallback else role


def call_line(call: Mapping[str, Any]) -> str:
    """Return a tool call in one line."""
    return f"→ {call.get('tool')} {json.dumps(call.get('arguments'), ensure_ascii=False, default=str)}"


def fence(text: str) -> str:
    """Return text as a code block. The fence is longer than every run of backticks in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _to_json(value: Any) -> str:
    plain = lambda each: format_time(each) if isinstance(each, datetime) else str(each)  # noqa: E731
    return redact_json(dump_json(value, default=plain))
