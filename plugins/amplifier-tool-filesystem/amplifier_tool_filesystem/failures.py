"""What a tool reports instead of a result."""

from __future__ import annotations


class Failure(Exception):
    """A call that cannot be done; `type` is the word a program compares, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class InvalidInput(Failure):
    """The input of a call is not what the tool's schema asks for."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidInput", message)


class OutsideFolder(Failure):
    """A path leads out of the working folder."""

    def __init__(self, given: str) -> None:
        super().__init__("OutsideFolder", f"{given!r} is outside the working folder; name a path inside it")
