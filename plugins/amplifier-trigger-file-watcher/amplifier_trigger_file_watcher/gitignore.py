"""Apply the .gitignore files of a tree: those nearest to a path first, then those up to the folder with `.git`."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from amplifier_core.permissions import read_regular

from .patterns import IgnoreRules, translate

NAME = ".gitignore"
CACHE_SIZE = 16_384
"""Folders with rules in memory, at most."""
_LARGEST = 1 << 24
"""Bytes of a file with rules that count."""


class Gitignore:
    """The .gitignore files for the paths below `base`; each is read at its first use."""

    def __init__(self, base: str) -> None:
        self._base = Path(base)
        self._facts_above = _list_above(base)  # before they are read: a later change is noticed
        self._above = [
            (f"{self._base.relative_to(Path(file).parent).as_posix()}/", rules)
            for file in self._facts_above
            if (rules := _read(Path(file)))
        ]
        self._rules_of = lru_cache(CACHE_SIZE)(lambda folder: _read(self._base / folder / NAME))

    @property
    def files_above(self) -> list[str]:
        """The paths of the .gitignore files above up to the repository, existing or not."""
        return list(self._facts_above)

    def has_changed_above(self) -> bool:
        """Return whether a .gitignore file above has changed since the last call, or others count."""
        before, self._facts_above = self._facts_above, _list_above(str(self._base))
        return before != self._facts_above

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


def _list_above(base: str) -> dict[str, tuple[int, ...] | None]:
    """Return the .gitignore files above up to the folder with `.git`, the nearest first, with their facts."""
    found: dict[str, tuple[int, ...] | None] = {}
    folder = base
    while not os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - asked again and again
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return {}  # without a repository, the folder's own files count alone
        file, folder = os.path.join(above, NAME), above  # noqa: PTH118
        try:
            status = os.stat(file)  # noqa: PTH116
            found[file] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            found[file] = None
    return found


def _read(file: Path) -> IgnoreRules | None:
    try:
        text = read_regular(file, _LARGEST).decode("utf-8-sig", "surrogateescape")
    except OSError:
        return None
    return IgnoreRules(line for each in text.split("\n") if _is_pattern(line := each.removesuffix("\r")))


def _is_pattern(line: str) -> bool:
    """Return whether a line is a readable pattern; git passes over all others, too."""
    try:
        return bool(translate(line))
    except ValueError:
        return False
