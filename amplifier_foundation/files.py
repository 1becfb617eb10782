"""Text and YAML files, written whole or not at all, and tried again where a file system is slow to agree."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amplifier_core.clock import Clock

Result = TypeVar("Result")

TRANSIENT = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EAGAIN", "EBUSY", "EIO", "EINTR", "ESTALE", "ETXTBSY")
    if hasattr(errno, name)
)
"""What folders that are shared or kept in step with another machine answer now and then."""

_FENCE = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)


def read_yaml(path: Path | str) -> dict[str, Any] | None:
    """Return the mapping that a YAML file holds, {} for an empty one; None when there is no such file.

    Values are what JSON can say, as in bundles. Raises `OSError`, and `UnreadableBundle`, a `ValueError`, with the line
    of what is not that.
    """
    from .bundles.positions import show_file

    path = Path(path)
    try:
        text = _text(path)
    except FileNotFoundError:
        return None
    return _mapping(text.removeprefix("\ufeff"), show_file(path))


def write_yaml(path: Path | str, data: Mapping[str, Any]) -> None:
    """Write a mapping as YAML, whole or not at all. Raises `ValueError` for what is no plain data, and `OSError`."""
    write_whole(path, to_yaml(data))


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return a mapping as YAML that `read_yaml` reads: in its order, without aliases. Raises `ValueError`."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    try:
        return str(yaml.dump(dict(data), Dumper=Plain, sort_keys=False, allow_unicode=True, width=120))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"cannot be written as YAML: {' '.join(str(error).split())}") from error


def parse_frontmatter(text: str, *, file: str = "front matter") -> tuple[dict[str, Any], str]:
    """Return the front matter of a Markdown text and its body; ({}, the text) for one that has none.

    Raises `UnreadableBundle`, a `ValueError`, which names `file` and the line.
    """
    text = text.removeprefix("\ufeff")
    begin = _FENCE.match(text)
    end = _END.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        return {}, text
    return _mapping(text[begin.end() : end.start()], file, first_line=2), text[end.end() :]


def _mapping(text: str, file: str, first_line: int = 1) -> dict[str, Any]:
    from .bundles.positions import Positions
    from .bundles.problems import UnreadableBundle, error_at
    from .bundles.yaml_reader import Unreadable, read_yaml

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
    """Return the text of a UTF-8 file, its line ends as they are.

    What is `TRANSIENT` is tried again up to `max_retries` times, after `initial_delay` seconds, then twice as many each
    time. Raises `OSError`, and `ValueError` for what is no UTF-8.
    """
    return await _patiently(lambda: _text(Path(path)), max_retries, initial_delay, clock)


async def write_with_retry(
    path: Path | str, text: str, max_retries: int = 3, initial_delay: float = 0.1, *, clock: Clock | None = None
) -> None:
    """Do what `write_whole` does, and try again as `read_with_retry` does. Raises `OSError`."""
    await _patiently(lambda: write_whole(path, text), max_retries, initial_delay, clock)


async def write_with_backup(
    path: Path | str,
    text: str,
    backup_suffix: str = ".backup",
    max_retries: int = 3,
    initial_delay: float = 0.1,
    *,
    clock: Clock | None = None,
) -> None:
    """Do what `write_with_retry` does, and keep what the file held as `<name>.backup`. Raises `OSError`."""
    await _patiently(lambda: back_up(path, backup_suffix), max_retries, initial_delay, clock)
    await write_with_retry(path, text, max_retries, initial_delay, clock=clock)


async def _patiently(
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


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8; save the file as UTF-8"
        ) from None


def back_up(path: Path | str, suffix: str = ".backup") -> None:
    """Copy a file to `<name><suffix>`, whole or not at all, with its permissions; nothing when there is none."""
    source = _real(path)
    with suppress(FileNotFoundError):
        _replace(source.with_name(source.name + suffix), source.read_bytes(), _mode_of(source))


def write_whole(path: Path | str, text: str) -> None:
    """Put `text` in the place of a file, which holds the old or the new text whenever the machine stops.

    A new file is its owner's alone (0600), an old one keeps its permissions; folders that are missing are made. Of a
    symlink it is the target that is written. Raises `OSError`.
    """
    target = _real(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _replace(target, text.encode("utf-8"), _mode_of(target))


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


def _replace(path: Path, data: bytes, mode: int) -> None:
    descriptor, new = mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(new).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(new).unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
