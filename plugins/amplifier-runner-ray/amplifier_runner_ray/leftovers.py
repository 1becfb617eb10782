"""Clear away a cluster of a bridge: Ray's daemons notice its end after a minute or more, and write until then."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

FOLDER = "amp-ray-"
"""The beginning of the name of a folder with a cluster of its own; the process id of its bridge follows."""
PATIENCE = 10.0
"""Seconds for killed daemons to be gone."""


def own_folder() -> Path:
    """Return the folder of the cluster of this process."""
    return Path("/tmp", f"{FOLDER}{os.getpid()}")  # a short path: sockets lie below


def end_leftovers() -> None:
    """Clear away the clusters of this user's bridges that are gone."""
    for folder in Path("/tmp").glob(f"{FOLDER}*"):
        with suppress(OSError):
            if not Path("/proc", folder.name.removeprefix(FOLDER)).exists() and folder.stat().st_uid == os.getuid():
                clear_away(folder)


def clear_away(folder: Path) -> None:
    """Kill the daemons of a cluster, and delete its folder once none of them can write in it."""
    deadline = time.monotonic() + PATIENCE
    while (daemons := _processes_of(folder)) and time.monotonic() < deadline:
        for pid in daemons:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def _processes_of(folder: Path) -> list[int]:
    """Return the processes whose command names a folder."""
    found = []
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdigit() and f"{folder}/".encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
    return found
