"""Find own patterns and personal data in a text, in a time that grows with its length alone."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# None of these begins again inside of what it has looked at.
_PERSONAL = {
    "email": r"(?<![\w.%+-])[\w.%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}(?![\w-])",
    "phone": r"(?<![\w+.-])(?:\+\d{1,3}[ .-]?(?:\(0?\d{1,4}\)[ .-]?)?\d{1,4}(?:[ ./-]?\d{2,4}){1,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}([ .-])\d{3}\1\d{4})(?![\w-]|\.\d)",
    "card": r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d{2,6}){2,4}(?![\w-]|\.\d)",
}
_MARKS = {"email": "@", "phone": "", "card": ""}
_CARDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|4[4-9]\d|5\d\d)\d{12,15}|35(?:2[89]|[3-8]\d)\d{12}"
)
"""The numbers that the makers of cards give out."""


class Found(NamedTuple):
    """A place in a text, and what is there."""

    start: int
    end: int
    name: str


class Finder:
    """Finds what a configuration names."""

    def __init__(self, patterns: Mapping[str, str], kinds: Sequence[str]) -> None:
        self._own = {name: compile_pattern(name, pattern) for name, pattern in patterns.items()}
        self._kinds = [(kind, _MARKS[kind], re.compile(_PERSONAL[kind], re.ASCII)) for kind in kinds]

    def __bool__(self) -> bool:
        return bool(self._own or self._kinds)

    def replace(self, text: str, make: Callable[[str, str], str]) -> str:
        """Return a text with `make(name, found)` in place of what was found."""
        for kind, mark, pattern in self._kinds:
            if mark in text:
                text = _replace(text, _find_personal(kind, pattern, text), make)
        if self._own:
            given = text.encode("utf-8", "surrogatepass")
            for name, own in self._own.items():
                found = (Found(match.start(), match.end(), name) for match in own.finditer(given))
                given = _replace_bytes(given, found, make)
            text = given.decode("utf-8", "surrogatepass")
        return text


@cache
def compile_pattern(name: str, pattern: str) -> Any:
    """Return a compiled own pattern. Raises `ValueError` for one that cannot work."""
    try:
        re2 = import_module("re2")  # it has no types
    except ImportError:
        raise ValueError(
            "own patterns need google-re2. Install it with: pip install 'amplifier-hooks-redaction[patterns]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(
            f"{name}: {pattern!r} cannot be used: {why}. Lookarounds and backreferences do not exist here"
        ) from None
    if compiled.search(b"") is not None:
        raise ValueError(f"{name}: {pattern!r} fits an empty text, so it would be found everywhere")
    return compiled


def _find_personal(kind: str, pattern: re.Pattern[str], text: str) -> Iterator[Found]:
    for match in pattern.finditer(text):
        if kind != "card" or is_card(match[0]):
            yield Found(match.start(), match.end(), kind)


def is_card(text: str) -> bool:
    """Return whether a text is the number of a payment card, by its beginning, its length and its last digit (Luhn)."""
    digits = [int(each) for each in text if each.isdigit()]
    if not _CARDS.fullmatch("".join(map(str, digits))):
        return False
    doubled = (sum(divmod(2 * each, 10)) for each in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _replace(text: str, found: Iterator[Found], make: Callable[[str, str], str]) -> str:
    pieces, last = [], 0
    for start, end, name in found:
        pieces += [text[last:start], make(name, text[start:end])]
        last = end
    return "".join((*pieces, text[last:])) if last else text


def _replace_bytes(given: bytes, found: Iterator[Found], make: Callable[[str, str], str]) -> bytes:
    pieces, last = [], 0
    for start, end, name in found:
        if start == end:  # an empty place holds nothing to hide
            continue
        made = make(name, given[start:end].decode("utf-8", "replace"))
        pieces += [given[last:start], made.encode("utf-8", "surrogatepass")]
        last = end
    return b"".join((*pieces, given[last:])) if last else given
