"""Look at the files that a command's patterns name, and at those below the folders that it walks."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from fnmatch import translate
from typing import TYPE_CHECKING

from amplifier_core.permissions.protected import fold
from amplifier_core.permissions.rules import describe_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_NAMES = 2_000
"""Entries of folders that a pattern is compared with."""
MOST_ENTRIES = 20_000
"""Entries of folders below which a refused file is looked for."""


class TooManyFiles(Exception):
    """There are more files than are looked at."""


class Closed:
    """The patterns of paths that rules refuse or ask for."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns
        self._fit = re.compile("|".join(f"(?:{describe_pattern(each, 'read', folds=True)})" for each in patterns))

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def fits_below(self, root: str, folder: str) -> bool:
        """Return whether a pattern fits a path below a root, with its links; also where there are too many."""
        waiting, seen, entries = [os.path.realpath(root)], set(), 0
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            inside = path.removeprefix(f"{folder}/") if path != folder else "."
            if self._fit.fullmatch(fold(inside)):
                return True
            with suppress(OSError):  # a file, gone, or not to be read
                found = list(os.scandir(path))
                entries += len(found)
                waiting += [os.path.realpath(each.path) if each.is_symlink() else each.path for each in found]
            if entries > MOST_ENTRIES:
                return True
        return False


def expand(pattern: str, folder: str) -> list[str]:
    """Return the paths that fit a pattern of `Word`, relative to a folder. Raises `TooManyFiles`."""
    found, entries = ["/" if pattern.startswith("/") else ""], 0
    for part in filter(None, pattern.split("/")):
        if not re.search(r"[*?[]", part):
            found = [os.path.join(each, part) for each in found]  # noqa: PTH118 - pathlib removes "."
            found = [each for each in found if os.path.lexists(os.path.join(folder, each))]  # noqa: PTH118 - as above
            continue
        fit, longer = re.compile(translate(part)).fullmatch, []
        for above in found:
            names = [".", ".."] if part.startswith(".") else []
            with suppress(OSError):
                names += os.listdir(os.path.join(folder, above))  # noqa: PTH118, PTH208 - as above
            entries += len(names)
            if entries > MOST_NAMES:
                raise TooManyFiles(pattern)
            shown = [name for name in names if part.startswith(".") or not name.startswith(".")]
            longer += [os.path.join(above, name) for name in shown if fit(name)]  # noqa: PTH118 - as above
        found = longer
    return found
