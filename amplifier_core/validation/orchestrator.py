"""Orchestrators: the loop that a session mounts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .validator import ModuleValidator, check_complete, check_method, nothing_mounted

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult

PASSED = dict.fromkeys(("prompt", "context", "providers", "tools", "hooks", "coordinator"), "")
"""What a session passes, all of it by name."""


class OrchestratorValidator(ModuleValidator):
    """Validates a module that mounts the orchestrator of a session; no turn is run."""

    module_type: ClassVar[str] = "orchestrator"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether the orchestrator keeps the protocol."""
        orchestrator = coordinator.get("orchestrator")
        if orchestrator is None:
            nothing_mounted(result, "orchestrator", '"orchestrator", orchestrator')
        elif check_complete(result, "the orchestrator", orchestrator, ("execute",)):
            title = "the orchestrator: execute()"
            check_method(result, "orchestrator_execute", title, orchestrator.execute, **PASSED)
