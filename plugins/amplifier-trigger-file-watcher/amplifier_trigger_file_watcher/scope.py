"""Select the files to watch, and show their paths."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from .gitignore import NAME as GITIGNORE
from .gitignore import Gitignore
from .patterns import DEFAULT_IGNORES, IgnoreRules, Patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EVERYTHING = (["**/*"], ["**"], ["*"])
CACHE_SIZE = 16_384
"""Folders with a remembered verdict, at most."""


class Scope:
    """A folder and the patterns of the files to watch in it.

    Paths are relative to the folder, with slashes; the path of a folder ends in one.
    """

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
        """The folder's real path: the operating system reports changes below this one."""
        self._shown_base = _relative(folder, working_dir)
        self._included = None if list(patterns) in EVERYTHING else Patterns(patterns)
        self._ignored = IgnoreRules([*DEFAULT_IGNORES, *_ignore_home(self.base), *ignore])
        self._gitignore = gitignore
        self.counts = self._new_verdicts()
        """Return whether a file is watched, or a folder may hold watched files."""

    def reread(self) -> Callable[[str], bool]:
        """Read the .gitignore files again; return `counts` as it was."""
        before, self.counts = self.counts, self._new_verdicts()
        return before

    def is_rules_file(self, path: str) -> bool:
        """Return whether a file decides about others: a .gitignore file, when those are heeded."""
        return self._gitignore and (path == GITIGNORE or path.endswith(f"/{GITIGNORE}"))

    def show(self, path: str) -> str:
        """Return the path for events: relative to the working folder if it lies inside, with slashes."""
        return _printable((self._shown_base / path).as_posix())

    def absolute(self, path: str) -> str:
        """Return the absolute path for events, below the folder as the bundle names it."""
        return _printable(str(self.folder / path))

    def uri_of_escaped(self, path: str) -> str | None:
        """Return the file URI of a path whose name is not UTF-8: it names the file exactly, and is text."""
        uri = (self.folder / path).as_uri()
        return uri if self.absolute(path) != str(self.folder / path) else None

    def relative(self, path: str) -> str | None:
        """Return the path below the folder of an absolute one, None for a path elsewhere."""
        named = Path(os.path.normpath(path))
        tops = (top for top in (self.folder, Path(self.base)) if top in named.parents)
        return next((named.relative_to(top).as_posix() for top in tops), None)

    def refuse(self, path: str) -> str | None:
        """Return the reason why a file is not watched, None for one that is."""
        if self.counts(path):
            return None
        left_out = self._included is not None and not self._included.match(path)
        return f"no pattern names {path}" if left_out else f"{path} is ignored"

    def identity(self) -> tuple[int, int] | None:
        """Return the device and inode of the folder, which differ for another folder of its name; None without one."""
        try:
            status = Path(self.base).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _new_verdicts(self) -> Callable[[str], bool]:
        included, ignored = self._included, self._ignored
        gitignore = Gitignore(self.base) if self._gitignore else None

        def is_ignored(path: str) -> bool:
            verdict = ignored.decide(path)
            if verdict is None and gitignore is not None:
                verdict = gitignore.decide(path)
            return bool(verdict)

        # An ignored folder is never entered, so that no pattern takes back a file in it.
        @lru_cache(CACHE_SIZE)
        def enters(folder: str) -> bool:
            return folder == "" or (enters(folder[: folder.rfind("/", 0, -1) + 1]) and not is_ignored(folder))

        def counts(path: str) -> bool:
            if path == "" or path.endswith("/"):
                return enters(path)
            if not enters(path[: path.rfind("/") + 1]) or is_ignored(path):
                return False
            return included is None or included.match(path)

        return counts


def _ignore_home(base: str) -> list[str]:
    """Return a pattern for amplifier's own data, if it lies below `base`."""
    home = os.environ.get("AMPLIFIER_HOME")
    if not home:
        return []
    below = os.path.relpath(os.path.realpath(home), base)
    outside = below == os.curdir or Path(below).parts[0] == os.pardir
    return [] if outside else [f"/{GitIgnoreSpecPattern.escape(below.replace(os.sep, '/'))}/"]


def _relative(folder: Path, working_dir: Path) -> Path:
    """Return `folder` relative to the working folder, by their names or their real paths, else unchanged."""
    for inner, outer in ((folder, working_dir.absolute()), (folder.resolve(), working_dir.resolve())):
        with suppress(ValueError):
            return inner.relative_to(outer)
    return folder


def _printable(path: str) -> str:
    """Write the bytes of a file name that is not UTF-8 as escapes: an event is JSON."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
