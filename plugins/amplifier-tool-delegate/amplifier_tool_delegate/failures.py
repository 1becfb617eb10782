"""What a call reports instead of an agent's answer."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_CAUSE = 2_000
"""Characters of another program's error that are handed on."""


class Failure(Exception):
    """A call that came to nothing; `type` is the word a program compares, `facts` what else it may need."""

    def __init__(self, type: str, message: str, **facts: Any) -> None:
        self.type = type
        self.facts = facts
        super().__init__(message)


class InvalidInput(Failure):
    """The input of a call is not what the schema asks for."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidInput", message)


class UnknownAgent(Failure):
    """No agent has this name."""

    def __init__(self, wanted: str, names: Iterable[str], cause: str = "") -> None:
        known = list(names)
        why = f" ({cause})" if cause else ""
        super().__init__("UnknownAgent", f"unknown agent '{shown(wanted)}'{why}{hint(wanted, known)}")


def hint(wanted: str, known: list[str]) -> str:
    """Return the end of a message about a name that is not there: the nearest ones, and a list of all."""
    close = get_close_matches(wanted[:200], known, n=3)
    nearest = f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else "."
    return f"{nearest} There are: {shown(', '.join(known)) or 'none'}"


def shown(text: str) -> str:
    """Return `text`, cut where it is too long for a message."""
    return text if len(text) <= LONGEST_CAUSE else text[:LONGEST_CAUSE] + " …"


def cause_of(error: BaseException) -> str:
    """Return what an error says, with its type."""
    return shown(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
