"""Describe a search, and what both ways of searching find."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from amplifier_tool_filesystem.globs import Found

LINE_LIMIT = 64 * 1024
"""Bytes of a line that Python searches."""
SHOWN_LIMIT = 500
"""Characters of a line to return."""


class Search(TypedDict):
    """A search, as JSON for the process: the input of the tool, and what the session adds."""

    pattern: str
    path: str
    fixed: bool
    ignore_case: bool
    files: str
    type: str
    output: str
    context: int
    ignored: bool
    max_results: int
    offset: int
    root: str
    closed: list[str]
    ripgrep: str
    seconds: float


class Line(NamedTuple):
    """A line of a file that fits, or is near one that does."""

    number: int
    text: str
    fits: bool


class Hit(NamedTuple):
    """A file with lines that fit: the lines for the output `content`, else their number."""

    found: Found
    lines: list[Line]
    total: int


def read_line(line: bytes) -> str:
    """Return the text of a line without its end."""
    return line.rstrip(b"\r\n").decode("utf-8", "replace")


def shorten(text: str) -> str:
    """Return a text as it is shown."""
    return text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"
