"""Which process runs a session: a session whose process is gone runs no longer, whatever its record says.

A process holds a lock for as long as it lives, however it ends; the record of a session names that lock.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from .paths import data_home, make_private

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import SessionRecord

KEY = "process"
"""The member of a record's metadata."""


def this_process() -> str:
    """Return the name of this process; from now on others can see whether it lives."""
    return _present(os.environ.get("AMPLIFIER_HOME"), os.getpid())


@cache
def _present(chosen: str | None, pid: int) -> str:  # by what the folder is found from: finding it takes its time
    name = f"{pid}-{secrets.token_hex(6)}"
    path = _folder(data_home()) / f"{name}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    atexit.register(_leave, path, pid)
    return name


def _leave(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # and no fork of the process, which ends before it
        path.unlink(missing_ok=True)


def is_gone(name: str) -> bool:
    """Return whether the process of that name has ended."""
    path = _folder(data_home()) / f"{os.path.basename(name)}.lock"  # noqa: PTH119 - a name that a store keeps must not lead elsewhere
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    path.unlink(missing_ok=True)
    return True


def as_it_is(record: SessionRecord) -> SessionRecord:
    """Return `record`, with the status `interrupted` when it says that it runs and its process is gone."""
    process = record.metadata.get(KEY)
    if record.status != "running" or not isinstance(process, str) or not is_gone(process):
        return record
    return replace(record, status="interrupted", error="its process ended while it ran")


def _folder(home: Path) -> Path:
    return make_private(home / "processes")
