"""Writing whole files so that a reader, or a crash, sees the old content or the new one and nothing between."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from .failures import Failure, InvalidInput
from .folder import Folder, Place, require_regular

if TYPE_CHECKING:
    from typing import BinaryIO

EDIT_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file that is edited: an edit holds all of it in memory."""


def write_file(folder: Folder, place: Place, data: bytes) -> bool:
    """Replace the file, or create it and the folders above it; return whether it is new.

    An existing file keeps its mode.
    """
    with folder.parent(place, make=True) as above:
        mode = _mode(above, place)
        _replace(above, place.name, data, mode)
    return mode is None


def edit_file(folder: Folder, place: Place, old: str, new: str, replace_all: bool) -> tuple[int, int]:
    """Replace `old` by `new`; return the bytes of the new file and how often it was replaced.

    Raises `Failure` when `old` is not there, or there more than once without `replace_all`.
    """
    text = _text(folder, place)
    count = _count(text, old, place, replace_all)
    data = encode(text.replace(old, new))
    write_file(folder, place, data)
    return len(data), count


def encode(text: str) -> bytes:
    """Return the text as UTF-8. Raises `InvalidInput` for half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text cannot be written as UTF-8: {error.reason} at character {error.start}") from error


def _text(folder: Folder, place: Place) -> str:
    with folder.open_file(place) as stream:
        data = stream.read(EDIT_LIMIT + 1)
    if len(data) > EDIT_LIMIT:
        raise Failure("FileTooLarge", f"{place} is larger than {EDIT_LIMIT} bytes; write it anew with write_file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(
            "BinaryFile", f"{place} is not UTF-8 text (byte {error.start}); an edit would damage it"
        ) from error


def _count(text: str, old: str, place: Place, replace_all: bool) -> int:
    count = text.count(old)
    if count == 0:
        raise Failure("NoMatch", f"old_string is not in {place}; read the file and give its exact text")
    overlaps = text.find(old, text.find(old) + 1) >= 0
    if overlaps and not replace_all:
        raise Failure(
            "AmbiguousMatch",
            f"old_string is {max(count, 2)} times in {place}; give more of its surroundings, or set replace_all",
        )
    return count


def _mode(above: int, place: Place) -> int | None:
    try:
        status = os.stat(place.name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(status, place)
    # a rename would replace it whatever its mode says
    if not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise Failure("PermissionError", f"{place} is read-only")
    return stat.S_IMODE(status.st_mode)


def _replace(above: int, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=above), "wb") as stream:
            _fill(stream, data, mode)
        os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=above)
        raise
    os.fsync(above)


def _fill(stream: BinaryIO, data: bytes, mode: int | None) -> None:
    if mode is not None:
        os.fchmod(stream.fileno(), mode)
    stream.write(data)
    stream.flush()
    os.fsync(stream.fileno())
