"""Describe sessions and their messages, as JSON and for a person."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message


_LONG = ("config", "metadata")


def facts(record: SessionRecord) -> dict[str, Any]:
    """Return a session as JSON shows it; `duration` (seconds) and `usage` are null when unknown."""
    from ...sessions.costs import spent_of
    from ...sessions.records import agent_of

    spent = spent_of(record)
    return {
        **{field.name: getattr(record, field.name) for field in fields(record) if field.name not in _LONG},
        "agent": agent_of(record) or None,
        "duration": spent.duration,
        "usage": spent.usage.to_dict() if spent.usage else None,
    }


def with_ids(messages: Iterable[Message], start: int = 0) -> list[dict[str, Any]]:
    """Return messages with their ids, as `session fork ID@m12` takes them; the first has position `start`."""
    return [{**message, "id": f"m{number}"} for number, message in enumerate(messages, start + 1)]


def print_message(number: int, message: Message) -> None:
    """Print one message for a person, without secrets."""
    from amplifier_core.utils.secrets import redact_text

    from ...sessions.exporting import call_line, title_of
    from ...sessions.history import text_of
    from ..output import console

    out = console()
    out.print()
    out.print(f"m{number}", style="dim", end=" ")
    out.print(title_of(message), style="bold cyan", markup=False)
    text = text_of(message)
    if text:
        out.print(redact_text(text), markup=False)
    for call in message.get("tool_calls") or ():
        out.print(redact_text(call_line(call)), markup=False, style="dim")
