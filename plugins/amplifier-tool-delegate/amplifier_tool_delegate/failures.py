"""Define the failures of calls, and write their messages."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_CAUSE = 2_000
"""Characters of another program's error in a message."""


class DelegationError(Exception):
    """A call fails; programs compare `type`, and `facts` are more for them."""

    def __init__(self, type: str, message: str, **facts: Any) -> None:
        self.type = type
        self.facts = facts
        super().__init__(message)


class InvalidInput(DelegationError):
    """The input of a call does not fit the schema."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidInput", message)


class UnknownAgent(DelegationError):
    """No agent has this name."""

    def __init__(self, wanted: str, names: Iterable[str], cause: str = "") -> None:
        known, why = list(names), f" ({cause})" if cause else ""
        close = get_close_matches(wanted[:200], known, n=3)
        nearest = f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else "."
        listed = shorten(", ".join(known)) or "none"
        super().__init__("UnknownAgent", f"unknown agent '{shorten(wanted)}'{why}{nearest} Known are: {listed}")


def shorten(text: str) -> str:
    """Return `text`, cut to the length for a message."""
    return text if len(text) <= LONGEST_CAUSE else text[:LONGEST_CAUSE] + " …"


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return shorten(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
