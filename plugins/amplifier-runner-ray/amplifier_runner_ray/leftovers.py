"""Clear away what a killed bridge left of its own cluster: Ray's daemons notice its end after a minute or more."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

FOLDER = "amp-ray-"
"""The beginning of the name of a folder with a cluster of its own; the process id of its bridge follows."""


def own_folder() -> Path:
    """Return the folder of the cluster of this process."""
    return Path("/tmp", f"{FOLDER}{os.getpid()}")  # a short path: sockets lie below


def end_leftovers() -> None:
    """Kill the daemons of this user's bridges that are gone, and delete their folders."""
    for folder in Path("/tmp").glob(f"{FOLDER}*"):
        with suppress(OSError):
            if not Path("/proc", folder.name.removeprefix(FOLDER)).exists() and folder.stat().st_uid == os.getuid():
                for pid in _processes_of(folder):
                    os.kill(pid, signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)


def _processes_of(folder: Path) -> list[int]:
    """Return the processes whose command names a folder."""
    found = []
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdigit() and f"{folder}/".encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
    return found
