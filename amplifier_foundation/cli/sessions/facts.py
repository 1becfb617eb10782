"""What is told of a session and of its messages, in JSON and to a person."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ...spawning.records import agent_of
from ...spent import spent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message


_LONG = ("config", "metadata")


def facts(record: SessionRecord) -> dict[str, Any]:
    """Return what JSON says of a session; `duration` is in seconds, and null like `usage` where nobody says."""
    spent = spent_of(record)
    return {
        **{field.name: getattr(record, field.name) for field in fields(record) if field.name not in _LONG},
        "agent": agent_of(record) or None,
        "duration": spent.duration,
        "usage": spent.usage.to_dict() if spent.usage else None,
    }


def with_ids(messages: Iterable[Message], start: int = 0) -> list[dict[str, Any]]:
    """Return messages with their ids, as `session fork ID@m12` takes them; the first stands at position `start`."""
    return [{**message, "id": f"m{number}"} for number, message in enumerate(messages, start + 1)]


def print_message(number: int, message: Message) -> None:
    """Print one message for a person."""
    from ...exporting import call_line, title_of
    from ...runners import text_of
    from ..output import console

    out = console()
    out.print()
    out.print(f"m{number}", style="dim", end=" ")
    out.print(title_of(message), style="bold cyan", markup=False)
    text = text_of(message)
    if text:
        out.print(text, markup=False)
    for call in message.get("tool_calls") or ():
        out.print(call_line(call), markup=False, style="dim")
