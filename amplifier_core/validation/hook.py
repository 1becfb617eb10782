"""Validate hooks: a module registers handlers instead of mounting something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .base import takes
from .validator import ModuleValidator

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult


class HookValidator(ModuleValidator):
    """Validates a module of hooks; no handler is called."""

    module_type: ClassVar[str] = "hook"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether each handler can be called with an event; a module may register none before it is ready."""
        handlers = handlers_of(coordinator)
        unfit = sorted(
            {f"{name} ({event})" for event, name, handler in handlers if not takes(handler, "event", "data")}
        )
        good = f"{len(handlers)} handlers registered"
        bad = f"a handler must take (event, data), and these do not: {', '.join(unfit)}"
        result.record("protocol_compliance", not unfit, good, bad)


def handlers_of(coordinator: Any) -> list[tuple[str, str, Any]]:
    """Return the handlers on a coordinator's hooks: event, name, function; [] for hooks other than the kernel's."""
    registered = getattr(getattr(coordinator, "hooks", None), "_handlers", {})
    return [(event, name, handler) for event, entries in registered.items() for handler, _, _, name, _ in entries]
