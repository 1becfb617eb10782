"""Validate contexts: the memory of a session, mounted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .validator import ModuleValidator, check_complete, check_method, record_absence

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult

CALLS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "add_message": (("message",), {}),
    "get_messages_for_request": ((), {"token_budget": "", "provider": ""}),
    "get_messages": ((), {}),
    "set_messages": (("messages",), {}),
    "clear": ((), {}),
}
"""The methods of the protocol, with the arguments of orchestrators and the session."""


class ContextValidator(ModuleValidator):
    """Validates a context module; no message is added."""

    module_type: ClassVar[str] = "context"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether the context keeps the protocol."""
        context = coordinator.get("context")
        if context is None:
            record_absence(result, "context", '"context", context')
        elif check_complete(result, "the context", context, CALLS):
            for name, (positional, named) in CALLS.items():
                title = f"the context: {name}()"
                check_method(result, f"context_{name}", title, getattr(context, name), *positional, **named)
