"""Which files are watched, and what they are called."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .gitignore import NAME as GITIGNORE
from .gitignore import Gitignore
from .patterns import DEFAULT_IGNORES, Patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EVERYTHING = (["**/*"], ["**"], ["*"])
KEPT = 16_384
"""Folders whose verdict is kept in memory, at most."""


class Scope:
    """A folder, and patterns of what counts in it; paths below it are relative to it, and folders' end in a slash."""

    def __init__(
        self,
        folder: Path,
        working_dir: Path,
        patterns: Iterable[str],
        ignore: Iterable[str],
        *,
        gitignore: bool = False,
    ) -> None:
        self.folder = folder
        self.base = os.path.realpath(folder)
        """The folder's real path: the one that the operating system reports changes below."""
        self._shown = _relative(folder, working_dir)
        self._included = None if list(patterns) in EVERYTHING else Patterns(patterns)
        self._ignored = Patterns([*DEFAULT_IGNORES, *_of_amplifier(self.base), *ignore], inside=False)
        self._gitignore = gitignore
        self.wanted = self._verdicts()
        """Whether a file counts, or a folder may hold one that does."""

    def reread(self) -> Callable[[str], bool]:
        """Read the .gitignore files again; return `wanted` as it was."""
        before, self.wanted = self.wanted, self._verdicts()
        return before

    def _verdicts(self) -> Callable[[str], bool]:
        return _verdicts(self._included, self._ignored, Gitignore(self.base) if self._gitignore else None)

    def rules(self, path: str) -> bool:
        """Return whether a file says which others count."""
        return self._gitignore and (path == GITIGNORE or path.endswith(f"/{GITIGNORE}"))

    def shown(self, path: str) -> str:
        """Return the path as an event carries it: relative to the working folder if it is inside, with slashes."""
        return _unicode((self._shown / path).as_posix())

    def below(self, path: str) -> str | None:
        """Return the path below the folder of a file with this absolute path, None for one that is elsewhere."""
        named = Path(os.path.normpath(path))
        tops = (top for top in (self.folder, Path(self.base)) if top in named.parents)
        return next((named.relative_to(top).as_posix() for top in tops), None)

    def refusal(self, path: str) -> str | None:
        """Return why a file does not count, None when it does."""
        if self.wanted(path):
            return None
        left_out = self._included is not None and not self._included.match(path)
        return f"no pattern names {path}" if left_out else f"{path} is ignored"

    def absolute(self, path: str) -> str:
        """Return the absolute path, below the folder as it was named."""
        return _unicode(str(self.folder / path))

    def identity(self) -> tuple[int, int] | None:
        """Return what tells this folder from another one of its name; None while there is none."""
        try:
            status = Path(self.base).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _verdicts(included: Patterns | None, ignored: Patterns, gitignore: Gitignore | None) -> Callable[[str], bool]:
    """Return the function that says whether a path counts: what is ignored with its folder cannot be taken back."""

    def refused(path: str) -> bool:
        verdict = ignored.decide(path)
        if verdict is None and gitignore is not None:
            verdict = gitignore.decide(path)
        return bool(verdict)

    @lru_cache(KEPT)
    def entered(folder: str) -> bool:
        return folder == "" or (entered(folder[: folder.rfind("/", 0, -1) + 1]) and not refused(folder))

    def wanted(path: str) -> bool:
        if path == "" or path.endswith("/"):
            return entered(path)
        if not entered(path[: path.rfind("/") + 1]) or refused(path):
            return False
        return included is None or included.match(path)

    return wanted


def _of_amplifier(base: str) -> list[str]:
    """Return the pattern of amplifier's own data, if it lies below."""
    home = os.environ.get("AMPLIFIER_HOME")
    if not home:
        return []
    below = os.path.relpath(os.path.realpath(home), base)
    outside = below == os.curdir or Path(below).parts[0] == os.pardir
    pattern = re.sub(r"([\\*?\[])", r"\\\1", below.replace(os.sep, "/"))
    return [] if outside else [f"/{pattern}/"]


def _relative(folder: Path, working_dir: Path) -> Path:
    """Return `folder` relative to the working folder, as they are named or as they really are, else as it is."""
    for inner, outer in ((folder, working_dir.absolute()), (folder.resolve(), working_dir.resolve())):
        with suppress(ValueError):
            return inner.relative_to(outer)
    return folder


def _unicode(path: str) -> str:
    """Write the bytes of a file name that is not UTF-8 as escapes: an event is JSON."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
