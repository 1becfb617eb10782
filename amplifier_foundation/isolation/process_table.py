"""Look at the processes of this machine in /proc, and signal them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal


def find_below(pids: list[int]) -> list[int]:
    """Return all living processes below some, those themselves left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents_of_all().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    heads = list(pids)
    while heads:
        below = children.get(heads.pop(), [])
        found += below
        heads += below
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process, ended ones that nobody waited for included."""
    return [each for each, parent in parents_of_all(ended=True).items() if parent == pid]


def parents_of_all(*, ended: bool = False) -> dict[int, int]:
    """Return the parent of each process."""
    parents = {}
    with os.scandir("/proc") as entries:
        pids = [entry.name for entry in entries if entry.name.isdigit()]
    for pid in pids:
        try:
            state, parent = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if ended or state != b"Z":
            parents[int(pid)] = int(parent)
    return parents


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, or with `-pid` to a group; one that has ended hears nothing."""
    with suppress(ProcessLookupError, PermissionError):  # a group of ended processes may refuse
        os.kill(pid, number)
