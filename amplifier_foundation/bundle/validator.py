"""Validate a bundle for a program: errors and warnings as lists of lines."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.frozen import frozen

from ..documents.positions import Place
from ..documents.problems import InvalidBundle, error_at, has_errors, warning_at
from .check import problems_of
from .sections import DEFAULT_SESSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..documents.problems import Problem
    from .model import Bundle


@frozen
class ValidationResult:
    """The outcome of a validation; `problems` has codes, files and lines."""

    problems: list[Problem] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether there are no errors."""
        return not has_errors(self.problems)

    @property
    def errors(self) -> list[str]:
        """Each error as one line."""
        return _lines(self.problems, "error")

    @property
    def warnings(self) -> list[str]:
        """Each warning as one line."""
        return _lines(self.problems, "warning")

    def add_error(self, message: str) -> None:
        """Add an error of the caller's own."""
        self.problems.append(error_at(Place("bundle"), "AMP104", message))

    def add_warning(self, message: str) -> None:
        """Add a warning of the caller's own."""
        self.problems.append(warning_at(Place("bundle"), "AMP104", message))

    def __bool__(self) -> bool:
        return self.valid


class BundleValidator:
    """Checks bundles; with `strict`, warnings are errors."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict

    def validate(self, bundle: Bundle | str | Path) -> ValidationResult:
        """Return every problem of a bundle. Raises `BundleError` for a missing file."""
        return ValidationResult(problems_of(bundle, strict=self._strict))

    def validate_completeness(self, bundle: Bundle) -> ValidationResult:
        """Return every problem, and the missing parts of a session on a kernel without defaults."""
        absent = [name for name in DEFAULT_SESSION if not bundle.session.get(name)]
        missing = [f"session: Missing required '{name}' field" for name in absent]
        if not bundle.session:
            missing = ["Mount plan requires 'session' section"]
        if not bundle.providers:
            missing.append("Mount plan requires at least one provider")
        result, place = self.validate(bundle), Place(f"bundle '{bundle.name}'")
        result.problems.extend(error_at(place, "AMP101", message) for message in missing)
        return result

    def validate_completeness_or_raise(self, bundle: Bundle) -> None:
        """Raise `InvalidBundle`, a `BundleValidationError`, for an error or a missing part."""
        _raise_errors(self.validate_completeness(bundle))


def validate_bundle(bundle: Bundle | str | Path) -> ValidationResult:
    """Return every problem of a bundle."""
    return BundleValidator().validate(bundle)


def validate_bundle_or_raise(bundle: Bundle | str | Path) -> None:
    """Raise `InvalidBundle`, a `BundleValidationError`, for an error in a bundle."""
    _raise_errors(validate_bundle(bundle))


def _raise_errors(result: ValidationResult) -> None:
    if not result.valid:
        raise InvalidBundle(result.problems)


def _lines(problems: Iterable[Problem], severity: str) -> list[str]:
    return [str(problem) for problem in problems if problem.severity == severity]
