"""Which files are watched, and what they are called."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .patterns import DEFAULT_IGNORES, Patterns

if TYPE_CHECKING:
    from collections.abc import Iterable


class Scope:
    """A folder, and patterns of what counts in it; paths below it are relative to it, and folders' end in a slash."""

    def __init__(self, folder: Path, working_dir: Path, patterns: Iterable[str], ignore: Iterable[str]) -> None:
        self.folder = folder
        self.base = os.path.realpath(folder)
        """The folder's real path: the one that the operating system reports changes below."""
        self._shown = _relative(folder, working_dir)
        self._included, self._ignored = Patterns(patterns), Patterns([*DEFAULT_IGNORES, *ignore])

    def wanted(self, path: str) -> bool:
        """Return whether a file counts, or whether a folder may hold one that does."""
        if path == "":
            return True
        return not self._ignored.match(path) and (path.endswith("/") or self._included.match(path))

    def shown(self, path: str) -> str:
        """Return the path as an event carries it: relative to the working folder if it is inside, with slashes."""
        return _unicode((self._shown / path).as_posix())

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


def _relative(folder: Path, working_dir: Path) -> Path:
    """Return `folder` relative to the working folder, as they are named or as they really are, else as it is."""
    for inner, outer in ((folder, working_dir.absolute()), (folder.resolve(), working_dir.resolve())):
        with suppress(ValueError):
            return inner.relative_to(outer)
    return folder


def _unicode(path: str) -> str:
    """Write the bytes of a file name that is not UTF-8 as escapes: an event is JSON."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
