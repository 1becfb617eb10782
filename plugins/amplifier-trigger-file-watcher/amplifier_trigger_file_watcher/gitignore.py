"""What the .gitignore files of a tree say: each of what is below it, the nearest first.

Those above the tree count too, up to the folder that holds `.git`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from .patterns import Patterns, lines_of

NAME = ".gitignore"
KEPT = 16_384
"""Folders whose file is kept in memory, at most."""


class Gitignore:
    """The .gitignore files that bear on what is below `base`, each read when it is first needed."""

    def __init__(self, base: str) -> None:
        self._base = Path(base)
        self._above = _above(self._base)
        self._patterns = lru_cache(KEPT)(self._read)

    def decide(self, path: str) -> bool | None:
        """Return whether the path, relative to `base`, is ignored; None when no file says anything of it."""
        cut = len(path) - path.endswith("/")
        while cut > 0:
            cut = path.rfind("/", 0, cut) + 1
            patterns = self._patterns(path[:cut])
            verdict = patterns.decide(path[cut:]) if patterns else None
            if verdict is not None:
                return verdict
            cut -= 1
        return self._decide_above(path)

    def _decide_above(self, path: str) -> bool | None:
        for prefix, patterns in self._above:
            verdict = patterns.decide(prefix + path)
            if verdict is not None:
                return verdict
        return None

    def _read(self, folder: str) -> Patterns | None:
        return _read(self._base / folder / NAME)


def _above(base: Path) -> list[tuple[str, Patterns]]:
    """Return what the files above say, the nearest first, each with what leads from its folder to `base`."""
    found: list[tuple[str, Patterns]] = []
    folder = base
    while not (folder / ".git").exists():
        if folder == folder.parent:
            return []  # no repository: what lies above has nothing to say
        folder = folder.parent
        if (patterns := _read(folder / NAME)) is not None:
            found.append((f"{base.relative_to(folder).as_posix()}/", patterns))
    return found


def _read(file: Path) -> Patterns | None:
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return Patterns(lines_of(text), inside=False)
