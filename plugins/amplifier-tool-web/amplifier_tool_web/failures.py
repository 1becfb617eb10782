"""Define the failure of a fetch."""

from __future__ import annotations


class FetchError(Exception):
    """A fetch fails; programs compare `type`, the text says what to do."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        super().__init__(message)
