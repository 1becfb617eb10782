"""Define the failures of tool calls."""

from __future__ import annotations


class BashError(Exception):
    """A call fails; programs compare `type`, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class InvalidInput(BashError):
    """The input of a call does not fit the tool's schema."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidInput", message)
