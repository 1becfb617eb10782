"""Define how a session shows its user a message outside the conversation."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from .contracts import Contract


@runtime_checkable
class DisplaySystem(Protocol, metaclass=Contract):
    """Shows a line to the user."""

    def show_message(self, message: str, level: Literal["info", "warning", "error"], source: str = "hook") -> None:
        """Show `message`; `source` names its origin (`hook:NAME`)."""
        ...
