"""Print messages for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.transcript import Message


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
