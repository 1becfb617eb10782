"""Give projects names that hold on every host: a folder has another path elsewhere.

A stored project is a path, or `NAME:/SUBFOLDER` for a folder in the project of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Projects:
    """Convert the paths of this host to stored projects and back."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = dict(folders)
        self._deepest_first = sorted(folders.items(), key=lambda each: -len(each[1]))

    def to_stored(self, path: str) -> str:
        """Return the stored form of a path; a path outside the named projects stays unchanged."""
        for name, folder in self._deepest_first:
            if path == folder or path.startswith(folder.rstrip("/") + "/"):
                return f"{name}:/{path[len(folder) :].lstrip('/')}"
        return path

    def to_local(self, stored: str) -> str:
        """Return the path on this host; a project that has no folder here keeps its stored form."""
        name, colon, below = stored.partition(":/")
        folder = self._folders.get(name) if colon else None
        if folder is None:
            return stored
        return f"{folder.rstrip('/')}/{below}" if below else folder
