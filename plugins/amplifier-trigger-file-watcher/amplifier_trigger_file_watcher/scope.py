"""Select the files to watch, and show their paths."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from .folder_index import folders_above
from .gitignore import NAME as GITIGNORE
from .gitignore import Gitignore
from .patterns import DEFAULT_IGNORES, IgnoreRules, Patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RULES_ABOVE = f"../{GITIGNORE}"
"""Stands for all .gitignore files above the folder."""
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
        self._links = _find_links(folder)
        self._shown_base = _relative(folder, working_dir).as_posix()
        self._included = None if list(patterns) in EVERYTHING else Patterns(patterns)
        self._ignore = list(ignore)
        self._gitignore = gitignore
        self._rules: Gitignore | None = None
        self.counts = self._new_verdicts()
        """Return whether a file is watched, or a folder may hold watched files."""

    def find_folder(self) -> tuple[str, int, int] | None:
        """Follow the links on the path anew, and return the `identity` of the folder."""
        while True:
            base, self._links = os.path.realpath(self.folder), _find_links(self.folder)
            if base != self.base:
                self.base = base
                self.counts = self._new_verdicts()
            identity = self.identity()
            if identity is None or identity[0] == base:  # else a link was switched meanwhile
                return identity

    def list_places(self) -> list[str]:
        """Return the paths outside with a say in the scope: links on the way, and .gitignore files above."""
        return [*self._links, *(self._rules.files_above if self._rules else [])]

    def has_new_rules_above(self) -> bool:
        """Return whether .gitignore files above the folder have changed since the last call."""
        return self._rules is not None and self._rules.has_changed_above()

    def reread(self) -> Callable[[str], bool]:
        """Read the .gitignore files again; return `counts` as it was."""
        before, self.counts = self.counts, self._new_verdicts()
        return before

    def is_rules_file(self, path: str) -> bool:
        """Return whether a file decides about others: a .gitignore file, when those are heeded."""
        return self._gitignore and (path == GITIGNORE or path.endswith(f"/{GITIGNORE}"))

    def show(self, path: str) -> str:
        """Return the path for events: relative to the working folder if it lies inside, with slashes."""
        return _printable(_join(self._shown_base, path, "/"))

    def absolute(self, path: str) -> str:
        """Return the absolute path for events, below the folder as the bundle names it."""
        return _printable(self._locate(path))

    def uri_of_escaped(self, path: str) -> str | None:
        """Return the file URI of a path whose name is not UTF-8: it names the file exactly, and is text."""
        located = self._locate(path)
        return None if _printable(located) == located else Path(located).as_uri()

    def relative(self, path: str) -> str | None:
        """Return the path below the folder of an absolute one, None for a path elsewhere."""
        named = Path(os.path.normpath(path))
        tops = (top for top in (self.folder, Path(self.base)) if top in named.parents)
        return next((named.relative_to(top).as_posix() for top in tops), None)

    def refuse(self, path: str) -> str | None:
        """Return the reason why a file is not watched, None for one that is."""
        for folder in map(posixpath.dirname, folders_above(path)):
            if folder and os.path.islink(self._locate(folder)):  # noqa: PTH114 - it never raises
                return f"{folder} is a symbolic link, which is not followed"
        if self.counts(path):
            return None
        left_out = self._included is not None and not self._included.match(path)
        return f"no pattern names {path}" if left_out else f"{path} is ignored"

    def explain_absence(self) -> str:
        """Return why there is no folder, in a few words."""
        try:
            self.folder.stat()
        except FileNotFoundError:
            pass
        except OSError as error:
            return f"cannot be reached: {error.strerror}"
        return "does not exist"

    def identity(self) -> tuple[str, int, int] | None:
        """Return the real path, device and inode of the folder; another one of its name has others.

        Return None without a folder.
        """
        try:
            status = self.folder.stat()
        except OSError:
            return None
        base = os.path.realpath(self.folder) if self._links else self.base
        return base, status.st_dev, status.st_ino

    def _locate(self, path: str) -> str:
        return _join(str(self.folder), path.replace("/", os.sep), os.sep)

    def _new_verdicts(self) -> Callable[[str], bool]:
        included = self._included
        ignored = IgnoreRules([*DEFAULT_IGNORES, *_ignore_home(self.base), *self._ignore])
        self._rules = gitignore = Gitignore(self.base) if self._gitignore else None

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


def _find_links(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.parents) if os.path.islink(path)]  # noqa: PTH114 - it never raises


def _ignore_home(base: str) -> list[str]:
    """Return a pattern for amplifier's own data, if it lies below `base`."""
    home = os.environ.get("AMPLIFIER_HOME")
    if not home:
        return []
    below = os.path.relpath(os.path.realpath(home), base)
    outside = below == os.curdir or Path(below).parts[0] == os.pardir
    return [] if outside else [f"/{GitIgnoreSpecPattern.escape(below.replace(os.sep, '/'))}/"]


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))  # `resolve` raises for a link to itself


def _relative(folder: Path, working_dir: Path) -> Path:
    """Return `folder` relative to the working folder, by their names or their real paths, else unchanged."""
    for inner, outer in ((folder, working_dir.absolute()), (_real(folder), _real(working_dir))):
        with suppress(ValueError):
            return inner.relative_to(outer)
    return folder


def _join(folder: str, path: str, separator: str) -> str:
    """Join two paths; a `Path` for each of 20,000 files of a batch takes too long."""
    if not path or folder == os.curdir:
        return path or folder
    return folder + path if folder.endswith(separator) else f"{folder}{separator}{path}"


def _printable(path: str) -> str:
    """Write the bytes of a file name that is not UTF-8 as escapes: an event is JSON."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
