"""Print messages for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.transcript import Message


def print_messages(messages: Iterable[Message], start: int = 0) -> None:
    """Print messages for a person, without secrets; the first has position `start`."""
    from amplifier_core.utils.secrets import redactor

    from ...sessions.exporting import call_line, title_of
    from ...sessions.history import text_of
    from ..output import PlainLines, output_of

    out, hide = output_of(sys.stdout), redactor()
    for number, message in enumerate(messages, start + 1):
        parts = [("\n", ""), (f"m{number}", "dim"), (" ", ""), (hide(title_of(message)), "bold cyan")]
        if text := text_of(message):
            parts.append((f"\n{hide(text)}", ""))
        parts += [(f"\n{hide(call_line(call))}", "dim") for call in message.get("tool_calls") or ()]
        if isinstance(out, PlainLines):
            out.print("".join(part for part, _ in parts))
        else:
            from rich.text import Text

            out.print(Text.assemble(*parts))
