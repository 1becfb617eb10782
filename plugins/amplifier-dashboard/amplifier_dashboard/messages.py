"""Render the messages of a session as entries of a feed: text, tool calls with what they change, and results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from amplifier_core.previews import compare_lines
from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.sessions.costs import format_cost, format_duration, read_spent
from amplifier_foundation.sessions.exporting import title_of
from amplifier_foundation.sessions.history import is_user_turn, text_of

from .markdown import render_markdown
from .pages import Entry
from .rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

    from .desk import Desk

TEMPLATE = "message.html"
SHOWN = 200
"""Messages on a page."""
CUT = 4_000
"""Characters of a result or of arguments on a page; a link leads to the whole."""
BACK = 40
"""Messages read before the first one shown: a fork point depends on the tool calls before it."""


async def read_entries(
    desk: Desk, record: SessionRecord, start: int, stop: int | None = None, *, prefix: str = "m", forks: bool = True
) -> list[Entry]:
    """Return the messages from position `start` up to `stop` (None: the end) as entries, numbered from 1.

    `prefix` begins the ids of their elements. With `forks`, each settled message has a button to fork there.
    """
    before = max(0, start - BACK)
    messages = await desk.store.read(record.session_id, before, stop)
    settled = find_settled(messages)
    return [
        Entry(
            before + place + 1,
            render_message(record, before + place + 1, messages[place], prefix=prefix, forks=forks and settled[place]),
        )
        for place in range(start - before, len(messages))
    ]


def find_settled(messages: Sequence[Message]) -> list[bool]:
    """Return for each message whether a fork can end with it: no tool call before it is without a result."""
    waiting: set[Any] | None = None
    found = []
    for message in messages:
        if message.get("role") == "assistant":
            waiting = {call.get("id") for call in message.get("tool_calls") or ()}
        elif message.get("role") == "tool":
            waiting = None if waiting is None else waiting - {message.get("tool_call_id")}
        else:
            waiting = set()
        found.append(waiting == set())
    return found


def render_message(record: SessionRecord, number: int, message: Message, *, prefix: str, forks: bool) -> Any:
    """Return a message as an element of a list."""
    role, text = str(message.get("role")), text_of(message)
    is_result, content = role == "tool", message.get("content")
    blocks = content if isinstance(content, list) else ()
    shown = redact_text(text) if is_result else ""
    values = {
        "session_id": record.session_id,
        "number": number,
        "prefix": prefix,
        "role": role,
        "title": title_of(message),
        "at": _metadata(message).get("timestamp"),
        "spent": _describe_spent(message),
        "by_hook": role == "user" and not is_user_turn(message),
        "text": render_markdown(text) if not is_result and text else "",
        "result": {
            "first": shown.strip().partition("\n")[0][:160],
            "text": shown[:CUT],
            "left_out": max(0, len(shown) - CUT),
        }
        if is_result
        else None,
        "calls": [_describe_call(call) for call in message.get("tool_calls") or ()],
        "images": sum(block.get("type") == "image" for block in blocks),
        "forks": forks,
    }
    return render_block(TEMPLATE, "message", values)


def _metadata(message: Message) -> Mapping[str, Any]:
    found = message.get("metadata")
    return found if isinstance(found, dict) else {}


def _describe_spent(message: Message) -> str:
    about = _metadata(message)
    spent = read_spent(about)
    cost = format_cost(spent.usage) if spent.usage else ""
    seconds = "" if spent.duration is None else format_duration(spent.duration)
    return ", ".join(filter(None, [str(about.get("model") or ""), seconds, cost]))


def _describe_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    given = arguments if isinstance(arguments, dict) else {}
    text = redact_text(json.dumps(arguments, ensure_ascii=False, default=str, indent=2))
    main = next((value for value in given.values() if isinstance(value, str)), "")
    return {
        "name": str(call.get("tool") or "tool"),
        "main": redact_text(" ".join(main.split()))[:120],
        "text": text[:CUT],
        "left_out": max(0, len(text) - CUT),
        "diff": diff_of(given),
    }


def diff_of(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a call with these arguments writes into a file, as lines with their kinds; [] for other calls."""
    path, new = given.get("file_path") or given.get("path"), given.get("new_string")
    old = given.get("old_string") if isinstance(new, str) else ""
    new = new if isinstance(new, str) else given.get("content")
    if not (isinstance(path, str) and isinstance(old, str) and isinstance(new, str)):
        return []
    return mark_lines("\n".join(compare_lines(old.splitlines(), new.splitlines(), path, path)))


def mark_lines(diff: str) -> list[tuple[str, str]]:
    """Return the lines of a unified diff without secrets, each with its kind: `come`, `gone`, `place` or `same`."""
    kinds = {"+": "come", "-": "gone", "@": "place"}
    lines = redact_text(diff).splitlines()[2:]
    shown = [(kinds.get(line[:1], "same"), line) for line in lines[: CUT // 10]]
    left = len(lines) - len(shown)
    return [*shown, ("place", f"… {left} more lines")] if left else shown
