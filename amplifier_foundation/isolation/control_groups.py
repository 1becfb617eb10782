"""Limit what all processes of a session use together: a control group for each session that asks for it.

The process of a session makes its group and joins it before the session begins. The zygote looks at the group, and
removes it. Version 2: below or beside the zygote's own group, where memory and processes are delegated. Version 1:
below its own group of each controller, where it may write. Joining takes about 10 ms, so no other session has a group.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .limits import ProcessLimits

PREFIX = "amplifier-"
THREADS = 64
"""Threads that a session may have besides its processes: a group counts both alike."""
_CONTROLLERS = {"memory": "memory", "processes": "pids", "cpu_seconds": "cpuacct"}
"""The controller of each limit in version 1."""
_DELEGATED = {"memory", "pids"}
"""The controllers that version 2 needs; it counts the time of a processor always."""


class Group:
    """The control group of one session's process: a folder, or one for each limit in version 1.

    Its name has the ids of the zygote and of the process.
    """

    def __init__(self, zygote: int, pid: int, places: Mapping[str, Path] | None = None) -> None:
        places = find_places() if places is None else places
        self._folders = {limit: place / f"{PREFIX}{zygote}-{pid}" for limit, place in places.items()}

    def join(self, limits: ProcessLimits, pid: int = 0) -> frozenset[str]:
        """Make the group for the limits that were asked for, and put a process there; return the limits it holds.

        `pid` 0 is this process.
        """
        wanted = sorted(limits.of_all & self._folders.keys())
        return frozenset(name for name in wanted if self._hold(name, limits, pid))

    def _hold(self, name: str, limits: ProcessLimits, pid: int) -> bool:
        folder = self._folders[name]
        try:
            folder.mkdir(exist_ok=True)
            if name == "memory":
                _limit_memory(folder, limits.memory or 0)
            elif name == "processes":
                _write(folder / "pids.max", 2 * (limits.processes or 0) + THREADS)
            _write(folder / "cgroup.procs", pid)
        except OSError:
            with suppress(OSError):
                folder.rmdir()  # it stays where the process is there already
            return False
        return True

    def find_reached(self, cpu_seconds: int) -> str:
        """Return the limit that the group has reached, '' for none; `cpu_seconds` 0 is no limit."""
        if not self._folders:
            return ""
        memory = self._folders["memory"]
        events = _read_counts(memory / "memory.events") or _read_counts(memory / "memory.oom_control")
        if events.get("oom_kill") or events.get("under_oom"):
            return "memory"
        if _read_counts(self._folders["processes"] / "pids.events").get("max"):
            return "processes"
        return "cpu_seconds" if cpu_seconds and self._read_seconds() >= cpu_seconds else ""

    def _read_seconds(self) -> float:
        folder = self._folders["cpu_seconds"]
        with suppress(OSError, ValueError):
            return int((folder / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
        return _read_counts(folder / "cpu.stat").get("usage_usec", 0) / 1e6

    def kill(self) -> None:
        """Kill all processes of the group at once, where the system can."""
        for folder in set(self._folders.values()):
            with suppress(OSError):
                _write(folder / "cgroup.kill", 1)

    def remove(self) -> bool:
        """Remove the group with those below it; return whether nothing is left. It stays while it has processes."""
        left = [folder for folder in set(self._folders.values()) if not _remove(folder)]
        return not left


@cache
def find_places() -> dict[str, Path]:
    """Return the folders where this process may make groups, by limit: all three, or none."""
    try:
        own = _find_own_groups()
    except OSError:
        return {}
    if "" in own and (place := find_delegated(own[""])) is not None:
        return dict.fromkeys(_CONTROLLERS, place)
    places = {limit: own[name] for limit, name in _CONTROLLERS.items() if name in own and _may_make(own[name])}
    return places if len(places) == len(_CONTROLLERS) else {}


def try_groups() -> bool:
    """Return whether a group with all limits can be made here, after a try."""
    from .limits import MEBIBYTE, ProcessLimits

    limits = ProcessLimits(memory=64 * MEBIBYTE, cpu_seconds=60, processes=1)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as waiting:  # it ends with its input
        group = Group(os.getpid(), waiting.pid)
        held = group.join(limits, waiting.pid)
    return group.remove() and held == limits.of_all


def find_delegated(own: Path, needed: Iterable[str] = _DELEGATED) -> Path | None:
    """Return where to make groups of version 2: below `own` or beside it; None where nobody delegated that.

    Beside the group of a session there is no place: its limits would not hold there.
    """
    for folder in (own,) if own.name.startswith(PREFIX) else (own, own.parent):
        with suppress(OSError):
            controllers = (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
            if set(needed) <= set(controllers) and _may_make(folder):
                return folder
    return None


def remove_stale() -> None:
    """Remove the empty groups of zygotes that were killed."""
    for place in set(find_places().values()):
        for folder in place.glob(f"{PREFIX}*-*"):
            zygote = folder.name.removeprefix(PREFIX).partition("-")[0]
            if zygote.isdigit() and not Path("/proc", zygote).exists():
                _remove(folder)


def _find_own_groups() -> dict[str, Path]:
    """Return the folders of this process's groups by controller; that of version 2 has the name ''."""
    own = {}
    for line in _read_lines("/proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    found: dict[str, Path] = {}
    for line in _read_lines("/proc/self/mountinfo"):
        mount, _, system = line.partition(" - ")
        (root, point), (kind, _, options) = mount.split(" ")[3:5], system.split(" ", 2)
        controllers = options.split(",") if kind == "cgroup" else []
        for name in [""] if kind == "cgroup2" else controllers:
            if name in own and Path(own[name]).is_relative_to(root):
                found.setdefault(name, Path(point) / Path(own[name]).relative_to(root))
    return found


def _read_lines(path: str) -> list[str]:
    """Return the lines of the system's tables: names of files in them have any bytes, and other ends of lines."""
    return [line for line in os.fsdecode(Path(path).read_bytes()).split("\n") if line]


def _may_make(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _limit_memory(folder: Path, most: int) -> None:
    """Limit a group; version 1 holds processes that reach the limit, until the zygote kills them all."""
    if (folder / "memory.max").exists():
        _write(folder / "memory.max", most)
        _write(folder / "memory.oom.group", 1)
        also, value = folder / "memory.swap.max", 0
    else:
        _write(folder / "memory.limit_in_bytes", most)
        _write(folder / "memory.oom_control", 1)
        also, value = folder / "memory.memsw.limit_in_bytes", most
    if also.exists():  # not without swap accounting
        _write(also, value)


def _remove(folder: Path) -> bool:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()
    return not folder.exists()


def _write(path: Path, value: int) -> None:
    path.write_text(str(value), encoding="ascii")


def _read_counts(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number a line; none of a missing file."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines) if value.isdigit()}
