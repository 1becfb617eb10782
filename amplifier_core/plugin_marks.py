"""Note the plugin that a process is loading: the next process then knows the plugin that ended it."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self

    from .entry_points import EntryPoint

_PREFIX = "loading-"
_SLOW = "slow-plugin-"
PAUSE = 600.0
"""Seconds for which a plugin that took too long is skipped: the machine may have been at fault."""
_PROBE = (
    "import sys; from amplifier_core.plugins import load_plugins; print('begun', flush=True); "
    "load_plugins(environ={'AMPLIFIER_LOAD_PLUGINS': sys.argv[1]}); print('survived')"
)


class LoadingMarks:
    """The marks in one folder: each loading process keeps a locked file with the name of the present plugin.

    The lock ends with the process, and a living process removes its file: a file without a lock accuses a plugin.
    Without a writable folder nothing is noted.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mark: tuple[Path, int] | None = None
        self._accusing: dict[str, list[Path]] = {}

    def __enter__(self) -> Self:
        if self._folder is None:
            return self
        import fcntl

        for path in self._folder.glob(f"{_PREFIX}*"):
            name = _read_stale_mark(path)
            if name is not None:
                self._accusing.setdefault(name, []).append(path)
        path = self._folder / f"{_PREFIX}{os.getpid()}-{time.time_ns()}"
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._mark = path, file
            fcntl.flock(file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *details: object) -> None:
        for paths in self._accusing.values():  # of blocked or removed plugins
            _remove(paths)
        if self._mark is not None:
            path, file = self._mark
            _remove([path])
            os.close(file)

    def note(self, name: str) -> None:
        """Note the loading of plugin `name`."""
        if self._mark is not None:
            with suppress(OSError):  # a full disk
                os.ftruncate(self._mark[1], 0)
                os.pwrite(self._mark[1], name.encode(), 0)

    def is_guilty(self, name: str) -> bool:
        """Return whether plugin `name` is accused and, loaded in a new process, ends that process too.

        The marks of an innocent plugin are removed: something else ended its process.
        """
        marks = self._accusing.pop(name, [])
        is_guilty = bool(marks) and _ends_its_process(name)
        _remove(() if is_guilty else marks)
        return is_guilty

    def note_slow(self, entry: EntryPoint) -> None:
        """Note that a plugin took too long to load, as it is now."""
        if self._folder is not None:
            with suppress(OSError):
                slow_mark(self._folder, entry.name).write_text(_describe_state(entry), encoding="utf-8")

    def is_slow(self, entry: EntryPoint) -> bool:
        """Return whether a plugin took too long to load a while ago, and its package has not changed since."""
        if self._folder is None:
            return False
        with suppress(OSError, ValueError):
            mark = slow_mark(self._folder, entry.name)
            is_recent = 0 <= time.time() - mark.stat().st_mtime < PAUSE
            if is_recent and mark.read_text(encoding="utf-8") == _describe_state(entry):
                return True
            mark.unlink()
        return False


def accused_plugins(folder: Path) -> set[str]:
    """Return the plugins that processes were loading at their end; nothing is tried, and no mark is removed."""
    names = {_read_stale_mark(path) for path in folder.glob(f"{_PREFIX}*")}
    return {name for name in names if name}


def slow_mark(folder: Path, name: str) -> Path:
    """Return the file that tells of a plugin that took too long to load."""
    from urllib.parse import quote

    return folder / f"{_SLOW}{quote(name, safe='')}"


def _describe_state(entry: EntryPoint) -> str:
    """Return the version of a plugin's package, with the time and the size of its first file."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(entry.module.partition(".")[0])
    status = os.stat(spec.origin) if spec is not None and spec.origin else None  # noqa: PTH116
    return f"{entry.dist} {entry.value} {status and (status.st_mtime_ns, status.st_size)}"


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _read_stale_mark(path: Path) -> str | None:
    """Return the name in the mark of a finished process; None for a living process."""
    import fcntl

    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file.read()
    except (OSError, ValueError):
        return None


def _ends_its_process(name: str) -> bool:
    import subprocess

    command = [sys.executable, "-P", "-c", _PROBE, name]
    try:
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"begun" in tried.stdout and b"survived" not in tried.stdout
