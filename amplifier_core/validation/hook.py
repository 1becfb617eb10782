"""Validate hooks: a module registers handlers instead of mounting something."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from ..events import ALL_EVENTS
from ..streaming import STREAM_EVENTS
from .base import takes
from .validator import ModuleValidator

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..testing import MockCoordinator
    from .base import ValidationResult

FAMILIES = frozenset({"execution", "llm", "orchestrator", "prompt", "provider", "session", "tool"})
"""The beginnings of names that are the program's own; modules have others for their events."""
OF_MODULES = (
    "llm:stream_thinking_delta", "orchestrator:steering_injected", "provider:fallback", "session:config",
    "tool:progress",
)  # fmt: skip
"""Names of these families that parts of the program emit beside the kernel's own."""


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
        declared = self._collect_declared(coordinator)
        for event in {event: None for event, _, _ in handlers}:
            if not isinstance(event, str) or "*" in event:
                bad = f"no event is ever named {event!r}, and its handler is never called: register it for each name"
                result.record("hook_events", False, "", bad)
            elif declared is not None and (fault := self._find_misspelling(event, declared)):
                result.record("hook_events", False, "", fault, "warning")

    def _find_misspelling(self, event: str, declared: Collection[str]) -> str:
        """Return what is wrong with the name of an event, "" for a good one: one of a known family is to be known."""
        family = event.partition(":")[0]
        known = {*ALL_EVENTS, *STREAM_EVENTS, *OF_MODULES, *declared}
        if event in known or family not in FAMILIES:
            return ""
        of_family = sorted(name for name in known if name.startswith(f"{family}:"))
        [nearest, *_] = get_close_matches(event, of_family, n=1, cutoff=0)
        all_of_it = f"; the events of '{family}' are {', '.join(of_family)}"
        return f"no event '{event}' is known, and its handler may never be called: did you mean '{nearest}'?{all_of_it}"

    def _collect_declared(self, coordinator: MockCoordinator) -> set[str] | None:
        """Return the events that modules on a coordinator declare as their own; None where that is not known here."""
        declared: set[str] = set()
        for contribution in coordinator.channels.get("observability.events", ()):
            try:
                found = contribution["callback"]()
            except Exception:  # as before the session is ready
                return None
            if isinstance(found, list | tuple | set | frozenset):
                declared.update(map(str, found))
            elif hasattr(found, "close"):  # a coroutine
                found.close()
                return None
        return declared


def handlers_of(coordinator: Any) -> list[tuple[str, str, Any]]:
    """Return the handlers on a coordinator's hooks: event, name, function; [] for hooks other than the kernel's."""
    registered = getattr(getattr(coordinator, "hooks", None), "_handlers", {})
    return [(event, name, handler) for event, entries in registered.items() for handler, _, _, name, _ in entries]
