"""How a session shows its user a message that is no part of the conversation."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable


@runtime_checkable
class DisplaySystem(Protocol):
    """Whatever can show a line to the user."""

    def show_message(self, message: str, level: Literal["info", "warning", "error"], source: str = "hook") -> None:
        """Show `message`; `source` says where it comes from (`hook:NAME`)."""
        ...
