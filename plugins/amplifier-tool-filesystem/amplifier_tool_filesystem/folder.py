"""The working folder, and the only way to anything in it.

A path is resolved first, links included, and must lie inside. It is then opened from the folder downwards, one part at
a time and never through a link, so that a link put in its place in between leads nowhere.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from .failures import Failure, InvalidInput, OutsideFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that replaced the file since it was looked at must not wait for a writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Place(NamedTuple):
    """A resolved path inside the working folder: its parts from there, none for the folder itself."""

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]

    def __str__(self) -> str:
        return show(self.parts)


class Folder:
    """A working folder. Every method raises `Failure` or `OSError`."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()

    def locate(self, given: str) -> Place:
        """Return where `given` leads, whether something is there or not; relative paths begin at the folder."""
        if not given or "\0" in given:
            raise InvalidInput(f"not a path: {given!r}")
        if given == "~" or given.startswith("~/"):
            raise OutsideFolder(given)
        try:
            # os.path: pathlib raises where links form a circle, and the open that follows says it better
            real = Path(os.path.realpath(self.root / given))
        except ValueError as error:
            raise InvalidInput(f"not a path: {given!r}") from error
        if not real.is_relative_to(self.root):
            raise OutsideFolder(given)
        return Place(real.relative_to(self.root).parts)

    @contextmanager
    def opened(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Give the descriptor of the folder at `parts`; `make` creates what is missing."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for part in parts:
                below = _enter(descriptor, part, make)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, place: Place, *, make: bool = False) -> Iterator[int]:
        """Give the descriptor of the folder that holds `place`."""
        if not place.parts:
            raise Failure("IsADirectoryError", "the working folder itself is not a file")
        with self.opened(place.parts[:-1], make=make) as descriptor:
            yield descriptor

    def is_folder(self, place: Place) -> bool:
        """Say whether a folder is there. Raises `FileNotFoundError` when nothing is."""
        if not place.parts:
            return True
        with self.parent(place) as above:
            return stat.S_ISDIR(os.stat(place.name, dir_fd=above, follow_symlinks=False).st_mode)

    def open_file(self, place: Place) -> BinaryIO:
        """Open a regular file to read; devices, FIFOs and sockets are refused without being touched."""
        with self.parent(place) as above:
            require_regular(os.stat(place.name, dir_fd=above, follow_symlinks=False), place)
            stream = os.fdopen(os.open(place.name, _FILE, dir_fd=above), "rb")
        try:
            require_regular(os.fstat(stream.fileno()), place)
        except Failure:
            stream.close()
            raise
        return stream


def require_regular(status: os.stat_result, place: Place) -> None:
    """Raise `Failure` unless `status` is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise Failure("IsADirectoryError", f"{place} is a folder; name a file, or list it with glob")
    if not stat.S_ISREG(status.st_mode):
        raise Failure("NotARegularFile", f"{place} is not a regular file but a device, FIFO or socket")


def show(parts: tuple[str, ...]) -> str:
    """Return the path as results name it: relative, with `/`, bytes that are no UTF-8 replaced."""
    return os.fsencode("/".join(parts) or ".").decode("utf-8", "replace")


def _enter(above: int, part: str, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # somebody else may be faster
        os.mkdir(part, dir_fd=above)
    return os.open(part, _FOLDER, dir_fd=above)
