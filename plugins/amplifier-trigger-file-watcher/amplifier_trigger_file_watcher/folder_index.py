"""Find the known files below a folder without a look at all others, and the folders above a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class FolderIndex:
    """The files of each folder; paths have slashes, that of a folder ends in one, and '' is the folder of all.

    Invariant: a folder is known while there are files below it.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._files: dict[str, set[str]] = {}
        self._folders: dict[str, set[str]] = {}
        for path in files:
            self.add(path)

    def add(self, path: str) -> None:
        """Take in a file."""
        folder = _folder_of(path)
        siblings = self._files.get(folder)
        if siblings is None:
            siblings = self._files[folder] = set()
            while folder and folder not in (beside := self._folders.setdefault(_folder_of(folder), set())):
                beside.add(folder)
                folder = _folder_of(folder)
        siblings.add(path)

    def discard(self, path: str) -> None:
        """Forget a file, and folders that are empty without it."""
        folder = _folder_of(path)
        self._files.get(folder, set()).discard(path)
        while not self._files.get(folder) and not self._folders.get(folder):
            self._files.pop(folder, None)
            self._folders.pop(folder, None)
            if not folder:
                return
            above = _folder_of(folder)
            self._folders.get(above, set()).discard(folder)
            folder = above

    def find_below(self, folder: str) -> Iterator[str]:
        """Yield the files below a folder, at any depth."""
        folders = [folder]
        while folders:
            each = folders.pop()
            yield from self._files.get(each, ())
            folders += self._folders.get(each, ())


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first."""
    while path:
        path = _folder_of(path)
        yield path


def find_outermost(folders: Iterable[str]) -> list[str]:
    """Return some folders without those inside others of them."""
    asked = set(folders)
    return [folder for folder in asked if asked.isdisjoint(folders_above(folder))]


def _folder_of(path: str) -> str:
    return path[: path.rfind("/", 0, -1) + 1]
