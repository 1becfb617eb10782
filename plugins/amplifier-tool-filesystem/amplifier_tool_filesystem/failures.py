"""Define the failures of tool calls."""

from __future__ import annotations


class FileToolError(Exception):
    """A call fails; programs compare `type`, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)


class InvalidInput(FileToolError):
    """The input of a call does not fit the tool's schema."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidInput", message)


class NotPermitted(FileToolError):
    """The file that a path leads to is another one than the permissions have decided about."""

    def __init__(self, path: str) -> None:
        super().__init__("NotPermitted", f"the path leads to {path} now, which needs its own permission; name that")


class OutsideFolder(FileToolError):
    """A path leads out of the working folder."""

    def __init__(self, given: str) -> None:
        super().__init__("OutsideFolder", f"{given!r} is outside the working folder; name a path inside it")
