"""Remember unreadable paths, and find out when they are readable again.

A folder without permission, or a file of a silent server, is no deleted one: its files stay known.
"""

from __future__ import annotations

import errno
import os

from .fingerprints import GONE, read_content, stat_file
from .folder_index import folders_above


class Unreadable:
    """The unreadable paths below `root`, each with the reason; a folder ends in a slash."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._reasons: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, path: str, error: OSError) -> None:
        """Take an unreadable path; do nothing if it is gone."""
        if error.errno in GONE:
            return
        if error.errno == errno.EACCES and path[-1:] not in ("", "/"):
            folder = next(folders_above(path))
            if self._is_closed(folder):  # else the file alone, as with access lists of a server
                path = folder
        self._reasons[path] = error.strerror

    def add_content(self, path: str) -> None:
        """Take a file with unreadable content alone: its size and time stand for it, and it is no problem.

        So it is with a folder without a watch: it is looked at now and then.
        """
        self._reasons.setdefault(path, None)

    def covers(self, path: str) -> bool:
        """Return whether a folder above a path is unreadable."""
        return bool(self._reasons) and any(self._reasons.get(folder) is not None for folder in folders_above(path))

    def forget_below(self, folders: set[str]) -> None:
        """Forget all paths in these folders: a look at them begins anew."""
        for path in [path for path in self._reasons if path in folders or not folders.isdisjoint(folders_above(path))]:
            del self._reasons[path]

    def take_readable(self) -> list[str]:
        """Return the paths readable again, or gone, and forget them."""
        readable = [path for path in self._reasons if self._is_readable(path)]
        for path in readable:
            del self._reasons[path]
        return readable

    def list_problems(self) -> list[tuple[str, str]]:
        """Return the paths with unseen changes, and the reasons."""
        return [(path, reason) for path, reason in self._reasons.items() if reason is not None]

    def _is_readable(self, path: str) -> bool:
        place, is_content = self._root + path, self._reasons[path] is None
        try:
            if path[-1:] in ("", "/"):
                os.stat(f"{place}.")  # noqa: PTH116 - a Path would drop the dot, which asks for the right to search
                with os.scandir(place) as entries:
                    return all(True for _ in entries)
            status = stat_file(place)
        except OSError as error:
            return error.errno in GONE
        try:
            if status is not None:
                read_content(place, status)  # to its end, as the comparison does: one block of it may be bad
        except OSError as error:
            return error.errno in GONE or (error.errno == errno.EACCES and not is_content)
        return True

    def _is_closed(self, folder: str) -> bool:
        try:
            os.stat(f"{self._root}{folder}.")  # noqa: PTH116 - as below
        except OSError as error:
            return error.errno not in GONE
        return False
