"""Record the named checks of a validation, and import the module under validation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from types import ModuleType

Severity = Literal["error", "warning", "info"]

READY = "async def on_session_ready(coordinator)"


@dataclass
class ValidationCheck:
    """One check; `severity` is the weight of its failure."""

    name: str
    passed: bool
    message: str
    severity: Severity


class Checks:
    """Checks in their order; a failed warning leaves the whole passed."""

    checks: list[ValidationCheck]

    def add(self, check: ValidationCheck) -> None:
        """Append `check`."""
        self.checks.append(check)

    def record(self, name: str, passed: bool, good: str, bad: str, severity: Severity = "error") -> bool:
        """Append a check with the message `good` or `bad`; return whether it passed."""
        self.add(ValidationCheck(name, passed, good if passed else bad, "info" if passed else severity))
        return passed

    @property
    def errors(self) -> list[ValidationCheck]:
        """The failed checks of severity error."""
        return [check for check in self.checks if not check.passed and check.severity == "error"]

    @property
    def warnings(self) -> list[ValidationCheck]:
        """The failed checks of severity warning."""
        return [check for check in self.checks if not check.passed and check.severity == "warning"]

    @property
    def passed(self) -> bool:
        """Whether no check of severity error failed."""
        return not self.errors

    def summary(self) -> str:
        """Return the verdict and the counts in one line."""
        verdict = "PASSED" if self.passed else "FAILED"
        good = sum(check.passed for check in self.checks)
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        return f"{verdict}: {good}/{len(self.checks)} checks passed ({counts})"


@dataclass
class ValidationResult(Checks):
    """The checks of one module."""

    module_type: str
    module_path: str
    checks: list[ValidationCheck] = field(default_factory=list)


def check_on_session_ready(module: Any) -> ValidationCheck | None:
    """Return a failed check if a module's `on_session_ready` is not async with a required parameter, else None."""
    ready = getattr(module, "on_session_ready", None)
    if ready is None or (is_async(ready) and takes(ready, "coordinator") and not takes(ready)):
        return None
    fault = "must take the coordinator, without a default" if is_async(ready) else "must be async"
    return ValidationCheck("on_session_ready_async", False, f"on_session_ready {fault}: write `{READY}`", "error")


def import_module_from_path(module_path: str | Path) -> ModuleType:
    """Import a module under its own name: a package folder, its `__init__.py`, a file, or a dotted name.

    A folder around `amplifier_module_…` stands for that package. Raises `FileNotFoundError` for an absent path, and
    every error of the import.
    """
    from ..loader import import_from_path

    path = Path(module_path)
    if path.exists():
        folder = path.parent if path.name == "__init__.py" else path
        return import_from_path(module_id_of(folder.absolute().name), folder.absolute())
    dotted = str(module_path)
    if all(part.isidentifier() for part in dotted.split(".")):
        return import_module(dotted)
    raise FileNotFoundError(f"no module at {path}: name its package folder, or install it and name its package")


def module_id_of(name: str) -> str:
    """Return the module id in the name of a distribution, a package or a folder: `tool-upper`."""
    return name.replace("_", "-").removeprefix("amplifier-").removeprefix("module-")


def is_async(function: Any) -> bool:
    """Return whether calling `function` gives a coroutine; it may be a method or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - what it is, not whether it is


def takes(function: Any, *positional: str, **named: str) -> bool:
    """Return whether `function` can be called with these arguments; True without a signature."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True
