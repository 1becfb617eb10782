"""Write whole files: a reader, or a crash, sees the old content or the new one, and nothing between."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from .failures import FileToolError, InvalidInput
from .folder import Folder, InnerPath, require_regular
from .seen import State, digest

if TYPE_CHECKING:
    from typing import BinaryIO

EDIT_LIMIT = 16 * 1024 * 1024
"""Bytes of the largest file to edit: an edit holds all of it in memory."""


class Overtaken(Exception):
    """Somebody else has written the file since its change was planned; nothing is written."""


def write_file(folder: Folder, path: InnerPath, data: bytes, before: State | None) -> tuple[bool, State]:
    """Replace the file, or create it and the folders above it; return whether it is new, and its state.

    An existing file keeps its mode. Raises `Overtaken` if the file is not in the state `before`; None: there is none.
    """
    with folder.open_parent(path, make=True) as above:
        mode = _read_mode(above, path)
        return mode is None, _replace(above, path, data, mode, before)


def prepare_write(folder: Folder, path: InnerPath) -> bool:
    """Make the folders above a file that somebody else writes; return whether it is new. Raises `FileToolError`."""
    with folder.open_parent(path, make=True) as above:
        return _read_mode(above, path) is None


def find_status(folder: Folder, path: InnerPath) -> os.stat_result | None:
    """Return the status of a regular file; None if nothing is there. Raises `FileToolError` for anything else."""
    try:
        with folder.open_parent(path) as above:
            return _read_status(above, path)
    except FileNotFoundError:
        return None


def read_state(stream: BinaryIO) -> State:
    """Return the state of an open file, with its content unless it is too large to edit, and go back to its start."""
    status = os.fstat(stream.fileno())
    if status.st_size > EDIT_LIMIT:
        return State.of(status)
    content = digest(stream.read())
    stream.seek(0)
    return State.of(status, content)


def read_text(folder: Folder, path: InnerPath) -> tuple[str, os.stat_result]:
    """Return the text of a file to edit, and its status. Raises `FileToolError` for no text, and for too much of it."""
    with folder.open_file(path) as stream:
        status, data = os.fstat(stream.fileno()), stream.read(EDIT_LIMIT + 1)
    if len(data) > EDIT_LIMIT:
        raise FileToolError("FileTooLarge", f"{path} is larger than {EDIT_LIMIT} bytes; replace it with write_file")
    try:
        return data.decode(), status
    except UnicodeDecodeError as error:
        raise FileToolError(
            "BinaryFile", f"{path} is not UTF-8 text (byte {error.start}); an edit would damage it"
        ) from error


def replace_text(text: str, path: InnerPath, old: str, new: str, replace_all: bool) -> tuple[str, int]:
    """Return a text with `old` replaced by `new`, and the number of replacements.

    Raises `FileToolError` if `old` is not there, or there more than once without `replace_all`.
    """
    count = text.count(old)
    if count == 0:
        hint = "; cells of a notebook are changed with edit_notebook" if str(path).endswith(".ipynb") else ""
        if old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
            ends = ("\\n", "\\r\\n") if "\r\n" in old else ("\\r\\n", "\\n")
            hint = f". Only line ends differ: lines end in {ends[0]} there, and in {ends[1]} in old_string"
        raise FileToolError("NoMatch", f"old_string is not in {path}; read the file and give its exact text{hint}")
    overlaps = text.find(old, text.find(old) + 1) >= 0
    if overlaps and not replace_all:
        raise FileToolError(
            "AmbiguousMatch",
            f"old_string is {max(count, 2)} times in {path}; give more of its surroundings, or set replace_all",
        )
    if len(text) + count * (len(new) - len(old)) > EDIT_LIMIT:
        raise FileToolError(
            "FileTooLarge", f"{path} would be larger than {EDIT_LIMIT} bytes after {count} replacements"
        )
    return text.replace(old, new), count


def encode(text: str) -> bytes:
    """Return the text as UTF-8. Raises `InvalidInput` for half of a surrogate pair: UTF-8 has no bytes for it."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text cannot be written as UTF-8: {error.reason} at character {error.start}") from error


def _read_status(above: int, path: InnerPath) -> os.stat_result | None:
    """Return the status of a regular file; None if nothing is there. Raises `FileToolError` for anything else."""
    try:
        status = os.stat(path.name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(status, path)
    return status


def _read_mode(above: int, path: InnerPath) -> int | None:
    """Return the mode of a file, None if there is none. Raises `FileToolError` for a read-only one."""
    status = _read_status(above, path)
    # a rename would replace it with any mode
    if status is not None and not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise FileToolError("PermissionError", f"{path} is read-only")
    return None if status is None else stat.S_IMODE(status.st_mode)


def _replace(above: int, path: InnerPath, data: bytes, mode: int | None, before: State | None) -> State:
    """Write a new file beside the old one, and rename it unless the old one has changed; return its state."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        if not _write_nameless(above, temporary, data, mode):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=above), "wb") as stream:
                _fill(stream, data, mode)
        state = State.of(os.stat(temporary, dir_fd=above, follow_symlinks=False), digest(data))
        status = _read_status(above, path)
        # not the time of the last change: another mode or access time is no other content
        if (None if status is None else State.of(status).mark) != (None if before is None else before.mark):
            raise Overtaken
        os.rename(temporary, path.name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=above)
        raise
    os.fsync(above)
    return state


def _write_nameless(above: int, temporary: str, data: bytes, mode: int | None) -> bool:
    """Write a file that has no name until it is whole: a kill leaves nothing. Return whether the system can do that."""
    flags: int | None = getattr(os, "O_TMPFILE", None)
    if flags is None:
        return False
    try:
        descriptor = os.open(".", flags | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=above)
    except OSError:  # the file system has no such files, or a full one says so again
        return False
    with os.fdopen(descriptor, "wb") as stream:
        _fill(stream, data, mode)
        try:
            os.link(f"/proc/self/fd/{stream.fileno()}", temporary, dst_dir_fd=above)
        except OSError:  # no /proc, or a sandbox that allows no links
            return False
    return True


def _fill(stream: BinaryIO, data: bytes, mode: int | None) -> None:
    if mode is not None:
        os.fchmod(stream.fileno(), mode)
    stream.write(data)
    stream.flush()
    os.fsync(stream.fileno())
