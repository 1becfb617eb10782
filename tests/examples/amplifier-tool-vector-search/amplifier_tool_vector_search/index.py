"""Keep passages as vectors: each counts the parts of its words, and two are near that share many of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PART = 4
"""Characters of a part of a word."""
LARGEST = 1_000_000
"""Bytes of the largest file that is read."""

Vector = dict[str, float]


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph of a file, and its first line (1-based)."""

    file: str
    line: int
    text: str


class Index:
    """Passages with their vectors of length 1; rare parts weigh more."""

    def __init__(self, passages: list[Passage]) -> None:
        counts = [Counter(parts_of(passage.text)) for passage in passages]
        self._spread = Counter(part for count in counts for part in count)
        self._size = len(passages)
        self._entries = [(self._weigh(count), passage) for count, passage in zip(counts, passages, strict=True)]

    @classmethod
    def of_folder(cls, folder: Path, files: str) -> Index:
        """Read the files of a folder that fit a pattern; unreadable and large ones are left out."""
        return cls([passage for path in sorted(folder.glob(files)) for passage in read_passages(path, folder)])

    def search(self, query: str, limit: int) -> list[tuple[float, Passage]]:
        """Return the nearest passages with their scores, from 0 to 1, the best first."""
        wanted = self._weigh(Counter(parts_of(query)))
        scored = ((sum(wanted[part] * vector.get(part, 0) for part in wanted), each) for vector, each in self._entries)
        return nlargest(limit, ((score, each) for score, each in scored if score > 0), key=lambda pair: pair[0])

    def _weigh(self, count: Mapping[str, int]) -> Vector:
        vector = {
            part: number * math.log((1 + self._size) / (1 + self._spread[part]) + 1) for part, number in count.items()
        }
        length = math.sqrt(sum(weight * weight for weight in vector.values())) or 1.0
        return {part: weight / length for part, weight in vector.items()}


def parts_of(text: str) -> Iterator[str]:
    """Yield the parts of each word, with marks at its ends."""
    for word in re.findall(r"\w+", text.lower()):
        marked = f"_{word}_"
        yield from (marked[start : start + PART] for start in range(max(1, len(marked) - PART + 1)))


def read_passages(path: Path, folder: Path) -> Iterator[Passage]:
    """Yield the paragraphs of a file."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for found in re.finditer(r"(?:[^\n]*\S[^\n]*\n?)+", text):
        line = text.count("\n", 0, found.start()) + 1
        yield Passage(path.relative_to(folder).as_posix(), line, found[0].strip())
