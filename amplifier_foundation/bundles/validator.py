"""What is wrong with a bundle that a program has in hand, as lists of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .check import problems_of
from .positions import Place
from .problems import InvalidBundle, error_at, has_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .model import Bundle
    from .problems import Problem


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What a validator found; `problems` has codes, files and lines."""

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

    def __bool__(self) -> bool:
        return self.valid


class BundleValidator:
    """Checks bundles; `strict` takes warnings for errors."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict

    def validate(self, bundle: Bundle | str | Path) -> ValidationResult:
        """Return everything wrong with what a bundle says. Raises `BundleError` when there is nothing to check."""
        return ValidationResult(problems_of(bundle, strict=self._strict))

    def validate_completeness(self, bundle: Bundle) -> ValidationResult:
        """Return what is wrong, and what a session cannot be made without on a kernel that fills in nothing."""
        found = self.validate(bundle).problems
        return ValidationResult([*found, *(_missing(bundle, text) for text in _incomplete(bundle))])


def validate_bundle(bundle: Bundle | str | Path) -> ValidationResult:
    """Return everything wrong with a bundle."""
    return BundleValidator().validate(bundle)


def validate_bundle_or_raise(bundle: Bundle | str | Path) -> None:
    """Raise `InvalidBundle`, a `BundleValidationError`, when something is wrong with a bundle."""
    result = validate_bundle(bundle)
    if not result.valid:
        raise InvalidBundle(result.problems)


def _lines(problems: Iterable[Problem], severity: str) -> list[str]:
    return [str(problem) for problem in problems if problem.severity == severity]


def _missing(bundle: Bundle, message: str) -> Problem:
    return error_at(Place(f"bundle '{bundle.name}'"), "AMP101", message)


def _incomplete(bundle: Bundle) -> Iterator[str]:
    if not bundle.session:
        yield "Mount plan requires 'session' section"
    else:
        for name in ("orchestrator", "context"):
            if not bundle.session.get(name):
                yield f"session: Missing required '{name}' field"
    if not bundle.providers:
        yield "Mount plan requires at least one provider"
