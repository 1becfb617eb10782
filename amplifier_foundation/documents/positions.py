"""Keep the position of each key and value of a file."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from amplifier_core.frozen import frozen
from amplifier_core.permissions.hidden import is_printable

KeyPath = tuple[str | int, ...]
"""Keys and indexes from the top: `("background_sessions", 0, "name")`."""

_PLAIN_KEY = re.compile(r"[\w+@/-]{1,80}", re.ASCII)
_PART = re.compile(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|([\w+@/-]+)', re.ASCII)


@frozen
class Place:
    """One position in one file: line and column count from 1; 0 is unknown."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Positions:
    """The positions of one file by key path. `file` is the file's name as shown to users."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.keys: dict[KeyPath, tuple[int, int]] = {}
        self.values: dict[KeyPath, tuple[int, int]] = {}
        self.written: dict[KeyPath, KeyPath] = {}
        """The paths in the file of values with another path in the data."""
        self.refused: set[KeyPath] = set()
        """The paths of aliases: the data has nothing there, and no other mistake is told of them."""

    def at(self, path: KeyPath, *, key: bool = False) -> Place:
        """Return the position of the value at `path`, or of its key; a missing value has its container's position."""
        found = self.keys.get(path) if key else None
        inner = path
        while found is None and inner and inner not in self.values:
            inner = inner[:-1]
        line, column = found or self.values.get(inner, (0, 0))
        if self.written:
            path = (*self.written.get(inner, inner), *path[len(inner) :])
        return Place(self.file, line, column, format_path(path))


def format_path(path: KeyPath) -> str:
    """Return `path` as text: `background_sessions[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part[:80])}]"
    return text


def parse_path(text: str) -> KeyPath:
    """Return the path of a text by `format_path`; long keys are shortened there."""
    parts: list[str | int] = []
    for found in _PART.finditer(text):
        number, quoted, plain = found.groups()
        parts.append(int(number) if number else json.loads(quoted) if quoted else plain)
    return tuple(parts)


def show_file(path: Path) -> str:
    """Return `path` on one line, relative to the current folder when it lies inside."""
    shown = whole = str(path)
    with suppress(FileNotFoundError):  # the current folder was removed
        folder = str(Path.cwd())
        shown = "." if whole == folder else whole.removeprefix(folder.rstrip(os.sep) + os.sep)
    return shown if is_printable(shown) else json.dumps(shown)
