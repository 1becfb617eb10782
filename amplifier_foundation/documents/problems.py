"""Report problems of documents in the format of compilers.

bundle.md:8:5: error[AMP102] background_sessions[0].pool_sizes: unknown key; did you mean 'pool_size'?
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from amplifier_core.errors import (
    AmplifierError,
    BundleDependencyError,
    BundleError,
    BundleLoadError,
    BundleValidationError,
)
from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import replace_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .positions import Place

CODES = {
    "AMP101": "a required key is missing",
    "AMP102": "a key is not known in its section",
    "AMP103": "a value is of the wrong kind",
    "AMP104": "a value is not one of those allowed, or does not go with another one",
    "AMP105": "a name is used twice",
    "AMP106": "a section is not known; it is ignored",
    "AMP107": "a relative path leaves the bundle's folder",
    "AMP108": "a file or folder that is named does not exist, or is not what is needed",
    "AMP109": "an agent names what nothing installed provides",
    "AMP110": "nothing installed has this name, or it is not loaded",
    "AMP111": "an included bundle cannot be had, or includes this one",
    "AMP112": "a trigger cannot work with its configuration",
    "AMP113": "a secret is written out",
    "AMP114": "a module cannot work with its configuration",
    "AMP115": "the bundle has no provider, or its provider no key",
    "AMP116": "a template or condition names what no trigger provides",
    "AMP117": "Python cannot parse the code of a module",
    "AMP118": "a fetched bundle reaches for what is not its own",
    "AMP119": "a background session may act on text of strangers, and does not say whether it does",
    "AMP120": "a workflow cannot run",
    "AMP121": "a skill or a command of a bundle cannot be used as it is written",
    "AMP122": "a permission, a hook or a preference names what nothing provides",
    "AMP201": "the file has no front matter",
    "AMP202": "the front matter is not closed",
    "AMP203": "the YAML cannot be parsed",
    "AMP204": "anchors, aliases and merge keys are refused",
    "AMP205": "a tag is not one of YAML's own",
    "AMP206": "a key stands twice in one mapping",
    "AMP207": "a key is not text",
    "AMP208": "the values are nested too deep",
    "AMP209": "the file is too large",
    "AMP210": "the file is not UTF-8",
    "AMP211": "the file holds characters that text does not have",
    "AMP212": "the front matter is not a mapping",
    "AMP213": "a number is not one, or is not finite",
    "AMP214": "a tab stands where YAML wants spaces",
}
"""Every code and what it means."""

SHOWN = 50
"""Problems printed by one error; `problems` has all."""


LONGEST_MESSAGE = 2_000
"""Characters; a longer message loses its middle."""


@frozen
class Problem:
    """One mistake; `path` is the key, `file` as shown to users, `line` 0 when unknown."""

    code: str
    severity: Literal["error", "warning"]
    path: str
    file: str
    line: int
    column: int
    message: str

    def as_dict(self) -> dict[str, str | int]:
        """Return the problem as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        what = f"{self.path}: {self.message}" if self.path else self.message
        return f"{where}: {self.severity}[{self.code}] {what}"


def error_at(place: Place, code: str, message: str) -> Problem:
    """Return an error at `place`."""
    return Problem(code, "error", place.path, place.file, place.line, place.column, _one_line(message))


def warning_at(place: Place, code: str, message: str) -> Problem:
    """Return a warning at `place`."""
    return Problem(code, "warning", place.path, place.file, place.line, place.column, _one_line(message))


def _one_line(message: str) -> str:
    """Return a short message on one line, control characters escaped: file content cannot steer a terminal."""
    if len(message) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        message = f"{message[:half]} … {message[-half:]}"
    return replace_unprintable(message, lambda each: each.encode("unicode_escape").decode())


def text_of(error: BaseException) -> str:
    """Return the text of an error; one that is not written for people, as a `KeyError`, has the name of its class."""
    is_told = isinstance(error, AmplifierError | ValueError | RuntimeError | OSError) and str(error)
    return str(error) if is_told else f"{type(error).__name__}: {error}"


def as_errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return `problems` as errors."""
    return [replace(problem, severity="error") for problem in problems]


def has_errors(problems: Iterable[Problem]) -> bool:
    """Whether one of `problems` is an error."""
    return any(problem.severity == "error" for problem in problems)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or `` without a close match for `name`."""
    names = list(known)
    if not names:
        return ""
    from difflib import SequenceMatcher, get_close_matches  # rarely needed, and not free

    close = get_close_matches(name, names, n=3)
    if not close:
        return ""

    def likeness(word: str) -> float:  # a shared beginning counts: of `retries`, `retry` is nearer than `triggers`
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, word, strict=False)))
        return SequenceMatcher(None, name, word).ratio() + min(shared, 5) / 50

    return f"; did you mean '{max(close, key=likeness)}'?"


def require_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Check the argument `name` of a function, whose values are `known`. Raises `ValueError`, which lists them."""
    if value not in known:
        raise ValueError(f"{name}: must be one of {', '.join(known)}, not {value!r}")


def require_text(name: str, value: object) -> None:
    """Check the argument `name` of a function. Raises `TypeError` for what is not text."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: must be text, not {type(value).__name__}")


class BundleProblemsError(BundleError):
    """Base of the errors with all `problems` of a bundle, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"… and {len(self.problems) - SHOWN} more")
        super().__init__("\n".join(lines))


class UnreadableBundle(BundleProblemsError, BundleLoadError):
    """The file is not valid text or YAML."""


class InvalidBundle(BundleProblemsError, BundleValidationError):
    """The file is readable, and its content is wrong."""


class BrokenInclude(BundleProblemsError, BundleDependencyError):
    """An included bundle is missing, or the includes go in a circle."""
