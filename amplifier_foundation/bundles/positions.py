"""Where in its file each key and value of a bundle stands."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

KeyPath = tuple[str | int, ...]
"""The way to a value: `("background_sessions", 0, "name")`."""

_PLAIN_KEY = re.compile(r"[\w+@/-]{1,80}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """One spot of one file: line and column count from 1 at the top of the file; 0 is unknown."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Positions:
    """The spots of one file by key path. `file` is how the file is shown to its user."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.keys: dict[KeyPath, tuple[int, int]] = {}
        self.values: dict[KeyPath, tuple[int, int]] = {}

    def at(self, path: KeyPath, *, key: bool = False) -> Place:
        """Return where the value at `path` stands, or its key; for what is not in the file, what should hold it."""
        line, column = self._find(path, key)
        return Place(self.file, line, column, format_path(path))

    def _find(self, path: KeyPath, key: bool) -> tuple[int, int]:
        if key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, (0, 0))


def format_path(path: KeyPath) -> str:
    """Return `path` as people write it: `background_sessions[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part[:80])}]"
    return text


def show_file(path: Path) -> str:
    """Return `path` relative to the current folder when it lies below it, else whole; always on one line."""
    whole, folder = str(path), str(Path.cwd())
    shown = "." if whole == folder else whole.removeprefix(folder.rstrip(os.sep) + os.sep)
    return shown if shown.isprintable() else json.dumps(shown)
