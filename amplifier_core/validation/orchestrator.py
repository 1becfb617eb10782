"""Validate orchestrators: the loop of a session, mounted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .validator import ModuleValidator, check_complete, check_method, record_absence

if TYPE_CHECKING:
    from ..testing import MockCoordinator
    from .base import ValidationResult

PASSED = dict.fromkeys(("prompt", "context", "providers", "tools", "hooks", "coordinator"), "")
"""The arguments from a session, all by name."""


class OrchestratorValidator(ModuleValidator):
    """Validates an orchestrator module; no turn is run."""

    module_type: ClassVar[str] = "orchestrator"

    def check_mounted(self, result: ValidationResult, coordinator: MockCoordinator) -> None:
        """Record whether the orchestrator keeps the protocol."""
        orchestrator = coordinator.get("orchestrator")
        if orchestrator is None:
            record_absence(result, "orchestrator", '"orchestrator", orchestrator')
        elif check_complete(result, "the orchestrator", orchestrator, ("execute",)):
            title = "the orchestrator: execute()"
            check_method(result, "orchestrator_execute", title, orchestrator.execute, **PASSED)
