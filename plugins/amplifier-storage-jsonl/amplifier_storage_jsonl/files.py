"""Write files completely or not at all, keep them private, and lock them between processes."""

# Names are text here: a path object takes longer than most operations on it, and an append would wait for it.
# ruff: noqa: PTH105, PTH108

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from amplifier_core.descriptors import EXHAUSTED, NO_DESCRIPTOR
from amplifier_core.errors import StoreDamaged, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def translate_errors(path: Path | str) -> Iterator[None]:
    """Raise `StoreUnavailable` for an error of the file system in the block, except a missing file."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except OSError as error:
        raise unavailable(path, error) from error


def unavailable(path: Path | str, error: OSError) -> StoreUnavailable:
    """Return the error for a refusal of the file system."""
    if error.errno in _FULL:
        what = f"cannot be written ({error.strerror}); what was acknowledged is kept. Free some space and try again"
    elif error.errno in EXHAUSTED:
        what = f"cannot be opened: {NO_DESCRIPTOR}"
    else:
        what = f"cannot be used ({error.strerror or error}). Check that you may write the file and its folder"
    return StoreUnavailable(path, what)


def damage_error(path: Path | str, what: str, remedy: str = "Restore a backup") -> StoreDamaged:
    """Return the error for a damaged file; `what` completes "<path>: "."""
    return StoreDamaged(path, f"{what}. {remedy}")


@contextmanager
def open_closing(path: Path | str, flags: int) -> Iterator[int]:
    """Do as `open_file` does, and close the file."""
    descriptor = open_file(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path | str, flags: int) -> int:
    """Open a file; `O_CREAT` makes it private (0600, whatever the umask)."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if flags & os.O_CREAT and os.fstat(descriptor).st_mode & 0o777 != 0o600:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def hold_lock(path: Path | str, *, shared: bool = False) -> Iterator[int]:
    """Hold the lock file `path` against other threads and processes; the system frees a dead one's."""
    with open_closing(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield descriptor


def read_all(path: str) -> bytes:
    """Return the content of a file."""
    with open_closing(path, os.O_RDONLY) as descriptor:
        parts = [os.read(descriptor, os.fstat(descriptor).st_size + 1)]
        while parts[-1]:
            parts.append(os.read(descriptor, 1 << 20))
    return b"".join(parts)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: one call, unless the system takes less."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def write_new(path: Path | str, data: bytes) -> None:
    """Make a file and bring it to the disk."""
    with open_closing(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, data)
        os.fsync(descriptor)


def replace(path: Path | str, data: bytes) -> None:
    """Put `data` in the place of the file, at once and for good."""
    folder, name = os.path.split(path)
    new = f"{folder}/.{name}.{os.urandom(4).hex()}.new"
    try:
        write_new(new, data)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
    sync_folder(folder)


def sync_folder(folder: Path | str) -> None:
    """Bring the names in a folder to the disk."""
    with open_closing(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, private to their owner (0700, whatever the umask)."""
    for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
        with suppress(FileExistsError):
            missing.mkdir(0o700)
            missing.chmod(0o700)
        sync_folder(missing.parent)
