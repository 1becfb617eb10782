"""Read a file of JSON lines that may be damaged, huge, or still written to."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..serialising import sanitize_for_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST = 64 * 2**20
"""Bytes of one line; a longer one is left out."""
DEEPEST = 100
"""Levels of nesting in a line; deeper values are left out."""
SHOWN = 20
"""Damaged lines that are named; the others are counted."""

_SPACES = b" \t\r\n\0"


class Line(NamedTuple):
    """One line: the position of its first byte, its number from 1, and its object."""

    offset: int
    number: int
    data: dict[str, Any]


class Notes:
    """What the reading of a source found besides its messages."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.left_out: Counter[str] = Counter()
        """What has no place in a history, by its kind."""

    def add_problem(self, text: str) -> None:
        """Note a problem, at most `SHOWN` of them."""
        if len(self.problems) < SHOWN:
            self.problems.append(text)
        else:
            self.left_out["further problem"] += 1


class JsonLines:
    """The JSON objects of a file, as long as it was when this was made, or of its first bytes; each pass reads anew."""

    def __init__(self, path: Path, most: int = sys.maxsize) -> None:
        self.path = path
        self.size = min(path.stat().st_size, most)

    def read_all(self, notes: Notes) -> Iterator[Line]:
        """Yield the objects in their order; other lines are noted, with their number. Raises `OSError`."""
        with self.path.open("rb") as file:
            offset, number = 0, 0
            while offset < self.size:
                raw = file.readline(min(LONGEST + 1, self.size - offset))
                if not raw:
                    break
                begin, number, offset = offset, number + 1, offset + len(raw)
                is_ended = raw.endswith(b"\n")
                if len(raw) > LONGEST and not is_ended:
                    offset = self._skip_line(file)
                    notes.add_problem(f"line {number} has more than {LONGEST // 2**20} MiB and is left out")
                    continue
                if not raw.strip(_SPACES):
                    continue
                data = parse_object(raw)
                if data is not None:
                    yield Line(begin, number, data)
                elif is_ended:
                    notes.add_problem(f"line {number} is damaged and is left out")
                else:
                    notes.add_problem(
                        f"the last line, {number}, is cut and is left out: it was being written, or its program was "
                        "killed. Import again later"
                    )

    def read_at(self, offsets: Iterator[int]) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines that begin at these positions. Raises `OSError`."""
        with self.path.open("rb") as file:
            position = 0
            for offset in offsets:
                if offset != position:
                    file.seek(offset)  # it empties the buffer
                raw = file.readline(LONGEST)
                position = offset + len(raw)
                data = parse_object(raw)
                if data is not None:  # somebody else may have changed the file meanwhile
                    yield data

    def _skip_line(self, file: Any) -> int:
        """Read to the end of a line; return the position after it."""
        while (raw := file.readline(LONGEST)) and not raw.endswith(b"\n"):
            pass
        return int(file.seek(0, os.SEEK_CUR))


def parse_object(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line, as a store takes it; None for anything else."""
    try:
        data = json.loads(raw.strip(_SPACES).decode("utf-8-sig", "replace"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    may_be_deep = raw.count(b"[") + raw.count(b"{") > DEEPEST
    if may_be_deep or b"\\ud" in raw.lower():  # half a character
        plain: dict[str, Any] = sanitize_for_json(data, DEEPEST)
        return plain
    return data
