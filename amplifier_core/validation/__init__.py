"""Check modules and mount plans against the contract, before a session uses them.

    result = await ToolValidator().validate("amplifier_module_tool_upper")
    for check in result.errors:
        print(check.name, check.message)

The suites for a module's own tests are in `validation.structural` and `validation.behavioral`; only they import a test
runner. Every name below is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # true for type checkers; the pytest plugin imports this package in every test run
if TYPE_CHECKING:
    from .base import ValidationCheck, ValidationResult
    from .context import ContextValidator
    from .hook import HookValidator
    from .mount_plan import MountPlanValidationResult, MountPlanValidator
    from .orchestrator import OrchestratorValidator
    from .provider import ProviderValidator
    from .tool import ToolValidator

_HOME_OF = {
    "ContextValidator": "context",
    "HookValidator": "hook",
    "MountPlanValidationResult": "mount_plan",
    "MountPlanValidator": "mount_plan",
    "OrchestratorValidator": "orchestrator",
    "ProviderValidator": "provider",
    "ToolValidator": "tool",
    "ValidationCheck": "base",
    "ValidationResult": "base",
}

__all__ = [
    "ContextValidator",
    "HookValidator",
    "MountPlanValidationResult",
    "MountPlanValidator",
    "OrchestratorValidator",
    "ProviderValidator",
    "ToolValidator",
    "ValidationCheck",
    "ValidationResult",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
