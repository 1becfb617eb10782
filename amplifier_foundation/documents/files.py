"""Read and write text and YAML files: atomically, with retries for slow file systems."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amplifier_core.clock import Clock

Result = TypeVar("Result")

TRANSIENT = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EAGAIN", "EBUSY", "EIO", "EINTR", "ESTALE", "ETXTBSY")
    if hasattr(errno, name)
)
"""Passing errors of shared and synchronised folders."""

_FENCE = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)


def read_yaml(path: Path | str) -> dict[str, Any] | None:
    """Return the mapping in a YAML file, {} for an empty file; None when there is no file.

    Values are limited to JSON's, as in bundles. Raises `OSError`, and `UnreadableBundle` (a `ValueError`) with the
    line of the mistake.
    """
    from .positions import show_file

    path = Path(path)
    try:
        text = _read_text(path)
    except FileNotFoundError:
        return None
    return _parse_mapping(text.lstrip("\ufeff"), show_file(path))


def write_yaml(path: Path | str, data: Mapping[str, Any]) -> None:
    """Write a mapping as YAML, atomically. Raises `ValueError` for values other than plain data, and `OSError`."""
    write_whole(path, to_yaml(data))


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return a mapping as YAML for `read_yaml`: in its order, without aliases. Raises `ValueError`."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    try:
        return str(yaml.dump(dict(data), Dumper=Plain, sort_keys=False, allow_unicode=True, width=120))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"cannot be written as YAML: {' '.join(str(error).split())}") from error


def parse_frontmatter(text: str, *, file: str = "front matter") -> tuple[dict[str, Any], str]:
    """Return the front matter of a Markdown text and its body; ({}, the text) without front matter.

    Byte-order marks at the beginning are ignored, repeated ones too. Raises `UnreadableBundle` (a `ValueError`) with
    `file` and line.
    """
    text = text.lstrip("\ufeff")
    begin = _FENCE.match(text)
    end = _END.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        return {}, text
    return _parse_mapping(text[begin.end() : end.start()], file, first_line=2), text[end.end() :]


def _parse_mapping(text: str, file: str, first_line: int = 1) -> dict[str, Any]:
    from .positions import Positions
    from .problems import UnreadableBundle, error_at
    from .yaml_reader import Unreadable, read_yaml

    positions = Positions(file)
    try:
        data, problems = read_yaml(text.replace("\r\n", "\n"), positions, first_line=first_line)
    except Unreadable as stopped:
        raise UnreadableBundle([stopped.problem]) from stopped
    if not isinstance(data, dict | None):
        problems.append(error_at(positions.at(()), "AMP212", "must be a mapping such as 'name: value'"))
    if problems:
        raise UnreadableBundle(problems)
    return data or {}


async def read_with_retry(
    path: Path | str, max_retries: int = 3, initial_delay: float = 0.1, *, clock: Clock | None = None
) -> str:
    """Return the text of a UTF-8 file, line ends unchanged.

    `TRANSIENT` errors are retried up to `max_retries` times, after `initial_delay` seconds, doubled each time. Raises
    `OSError`, and `ValueError` for a file in another encoding.
    """
    return await _retry(lambda: _read_text(Path(path)), max_retries, initial_delay, clock)


async def write_with_retry(
    path: Path | str, text: str, max_retries: int = 3, initial_delay: float = 0.1, *, clock: Clock | None = None
) -> None:
    """Write as `write_whole`, with the retries of `read_with_retry`. Raises `OSError`."""
    await _retry(lambda: write_whole(path, text), max_retries, initial_delay, clock)


async def write_with_backup(
    path: Path | str,
    text: str,
    backup_suffix: str = ".backup",
    max_retries: int = 3,
    initial_delay: float = 0.1,
    *,
    clock: Clock | None = None,
) -> None:
    """Write as `write_with_retry`, and keep the old content as `<name>.backup`. Raises `OSError`."""
    await _retry(lambda: back_up(path, backup_suffix), max_retries, initial_delay, clock)
    await write_with_retry(path, text, max_retries, initial_delay, clock=clock)


async def _retry(
    operation: Callable[[], Result], max_retries: int, initial_delay: float, clock: Clock | None
) -> Result:
    import asyncio

    from amplifier_core.clock import SystemClock

    clock = clock or SystemClock()
    for attempt in range(max_retries):
        try:
            return await asyncio.to_thread(operation)
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
        await clock.sleep(initial_delay * 2**attempt)
    return await asyncio.to_thread(operation)


def _read_text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8; save the file as UTF-8"
        ) from None


def back_up(path: Path | str, suffix: str = ".backup") -> None:
    """Copy a file to `<name><suffix>`, atomically and with its permissions; a missing file is not an error."""
    source = _real(path)
    with suppress(FileNotFoundError):
        replace_file(source.with_name(source.name + suffix), source.read_bytes(), _mode_of(source))


def write_whole(path: Path | str, text: str, *, is_durable: bool = True) -> None:
    """Replace a file's text atomically: after a crash the file holds the old or the new text.

    A new file is private (0600), an old one keeps its permissions; missing folders are created. A symlink's target is
    written. One that need not be durable may be lost or cut when the power fails. Raises `OSError`.
    """
    target = _real(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, text.encode("utf-8"), _mode_of(target), is_durable=is_durable)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep out all other threads and processes that lock the folder too while the block runs; wait for one in it.

    What is read, changed and written whole needs it: the last writer would drop what others wrote meanwhile. A thread
    that locks a folder twice waits for itself. Raises `OSError`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))  # a loop of symlinks is an `OSError` when it is opened, not before


def _mode_of(path: Path) -> int:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(mode):  # the place of a device or a pipe must not be taken
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return stat.S_IMODE(mode)


def replace_file(path: Path, data: bytes, mode: int, *, is_durable: bool = True) -> None:
    """Put a new file with these permissions in the place of what is at `path`, atomically; a symlink is not followed.

    Raises `OSError` with a file name.
    """
    new = ""
    try:
        descriptor, new = mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            if is_durable:
                os.fsync(descriptor)
        Path(new).replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # a write knows its descriptor alone, and nobody knows the name of the new file
        with suppress(OSError):
            Path(new).unlink()
        raise
    if not is_durable:
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # the rename is durable once its folder is
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
