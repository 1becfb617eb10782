"""Open files in the working folder, and nowhere else.

A path is resolved first, links included, and must lie inside. It is then opened from the folder downwards, one part at
a time and never through a link, so a link put there in between leads nowhere.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from .failures import FileToolError, InvalidInput, OutsideFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a FIFO has replaced the file meanwhile, opening it must not wait for a writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
BYTES = "".join(map(chr, range(0xDC80, 0xDD00)))
"""The characters that stand for bytes outside UTF-8 in a name."""


class InnerPath(NamedTuple):
    """A resolved path inside the working folder: its parts from there, none for the folder itself."""

    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]

    def __str__(self) -> str:
        return show(self.parts)


class Folder:
    """A working folder. Every method raises `FileToolError` or `OSError`."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()

    def resolve(self, given: str) -> InnerPath:
        """Return the resolved path of `given`, also if nothing is there; relative paths begin at the folder."""
        if not given or "\0" in given:
            raise InvalidInput(f"not a path: {given!r}")
        if given == "~" or given.startswith("~/"):
            raise OutsideFolder(given)
        try:
            # os.path: pathlib raises for a circle of links, and the later open has the better error
            named = self._find_shown(given)
            real = Path(os.path.realpath(self.root / named))
            if named != given and real != Path(os.path.normpath(self.root / named)):
                raise InvalidInput(f"{given!r} leads through a link; name the file that it leads to")
        except ValueError as error:
            raise InvalidInput(f"not a path: {given!r}") from error
        if not real.is_relative_to(self.root):
            raise OutsideFolder(given)
        return InnerPath(real.relative_to(self.root).parts)

    def _find_shown(self, given: str) -> str:
        r"""Return the path that results or the prompt of an event show as `given`, with `\xe9` or `\n` for what hides.

        Raises `InvalidInput` where two names in a folder are shown alike: the session would read the other file.
        """
        if "\\" not in given:
            return given
        named = ""
        for part in given.split("/"):
            above, found = Path(os.path.realpath(self.root / (named or "."))), [part]
            if "\\" in part and above.is_relative_to(self.root):
                with suppress(OSError):
                    found = [each.name for each in above.iterdir() if show_name(each.name) == part] or found
            if len(found) > 1:
                raise InvalidInput(f"{len(found)} names in one folder are shown as '{part}'; rename one of them")
            named += f"{found[0]}/"
        return named.removesuffix("/")

    @contextmanager
    def open_folder(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Give the descriptor of the folder at `parts`; `make` creates missing folders."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_parent(self, path: InnerPath, *, make: bool = False) -> Iterator[int]:
        """Give the descriptor of the folder around `path`."""
        if not path.parts:
            raise FileToolError("IsADirectoryError", "the working folder itself is not a file")
        with self.open_folder(path.parts[:-1], make=make) as descriptor:
            yield descriptor

    def is_folder(self, path: InnerPath) -> bool:
        """Return whether a folder is there. Raises `FileNotFoundError` if nothing is."""
        if not path.parts:
            return True
        with self.open_parent(path) as above:
            return stat.S_ISDIR(os.stat(path.name, dir_fd=above, follow_symlinks=False).st_mode)

    def open_file(self, path: InnerPath) -> BinaryIO:
        """Open a regular file to read; devices, FIFOs and sockets are refused and not touched."""
        with self.open_parent(path) as above:
            require_regular(os.stat(path.name, dir_fd=above, follow_symlinks=False), path)
            stream = os.fdopen(os.open(path.name, _FILE, dir_fd=above), "rb")
        try:
            require_regular(os.fstat(stream.fileno()), path)
        except FileToolError:
            stream.close()
            raise
        return stream


def require_regular(status: os.stat_result, path: InnerPath) -> None:
    """Raise `FileToolError` unless `status` describes a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise FileToolError("IsADirectoryError", f"{path} is a folder; name a file, or list it with glob")
    if not stat.S_ISREG(status.st_mode):
        raise FileToolError("NotARegularFile", f"{path} is not a regular file but a device, FIFO or socket")


def show_name(name: str) -> str:
    r"""Return a name as prompts of events show it: with `\xe9` for a byte outside UTF-8, and `\n` for a line break."""
    shown = show((name,))
    try:
        from amplifier_core.permissions.hidden import show_hidden
    except ModuleNotFoundError:  # another kernel shows events as they are
        return shown
    return show_hidden(shown)


def show(parts: tuple[str, ...]) -> str:
    """Return the path for results: relative, with `/`, a byte outside UTF-8 as `\\xe9`. `Folder.resolve` reads it."""
    return os.fsencode("/".join(parts) or ".").decode("utf-8", "backslashreplace")
