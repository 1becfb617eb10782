"""Apply the .gitignore files of a tree: those nearest to a path first, then those up to the folder with `.git`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .patterns import IgnoreRules, translate

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = ".gitignore"
CACHE_SIZE = 16_384
"""Folders with rules in memory, at most."""


class Gitignore:
    """The .gitignore files for the paths below `base`; each is read at its first use."""

    def __init__(self, base: str) -> None:
        self._base = Path(base)
        self._above = list(_read_above(self._base))
        self._rules_of = lru_cache(CACHE_SIZE)(lambda folder: _read(self._base / folder / NAME))

    def decide(self, path: str) -> bool | None:
        """Return whether a path below `base` is ignored, None without any match."""
        cut = len(path) - path.endswith("/")
        while cut > 0:
            cut = path.rfind("/", 0, cut) + 1
            rules = self._rules_of(path[:cut])
            verdict = rules.decide(path[cut:]) if rules else None
            if verdict is not None:
                return verdict
            cut -= 1
        verdicts = (rules.decide(prefix + path) for prefix, rules in self._above)
        return next((verdict for verdict in verdicts if verdict is not None), None)


def _read_above(base: Path) -> Iterator[tuple[str, IgnoreRules]]:
    """Yield the rules of the folders above, the nearest first, each with the path from its folder to `base`."""
    repository = next((folder for folder in (base, *base.parents) if (folder / ".git").exists()), base)
    for folder in base.parents:
        if not folder.is_relative_to(repository):
            return
        if rules := _read(folder / NAME):
            yield f"{base.relative_to(folder).as_posix()}/", rules


def _read(file: Path) -> IgnoreRules | None:
    try:
        text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError:
        return None
    return IgnoreRules(line for each in text.split("\n") if _is_pattern(line := each.removesuffix("\r")))


def _is_pattern(line: str) -> bool:
    """Return whether a line is a readable pattern; git passes over all others, too."""
    try:
        return bool(translate(line))
    except ValueError:
        return False
