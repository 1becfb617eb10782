"""Tell whether the process of a running session still lives.

A process holds a lock as long as it lives, however it ends. The record of a session names that lock. A session without
its lock is interrupted, also when its record says "running".
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict, StoreConflict
from amplifier_core.process_forks import close_in_forks

from ..paths import data_home, make_private
from .held import held_of
from .runs import is_run

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import SessionRecord
    from amplifier_core.store_transfer import StoreTransfer

KEY = "process"
"""The member of a record's metadata."""


def this_process() -> str:
    """Return the name of this process; others can tell by it whether the process lives."""
    return _hold_lock(os.environ.get("AMPLIFIER_HOME"), os.getpid())


@cache
def _hold_lock(chosen: str | None, pid: int) -> str:  # `chosen` is in the cache key: finding the folder is slow
    name = f"{pid}-{os.urandom(6).hex()}"
    path = _folder(data_home()) / f"{name}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    file = close_in_forks(os.fdopen(lock, "rb"))

    def leave() -> None:
        if os.getpid() == pid:  # in a fork, the file is the parent's
            path.unlink(missing_ok=True)
            file.close()

    atexit.register(leave)
    return name


def is_gone(name: str) -> bool:
    """Return whether the process of that name has ended."""
    path = _folder(data_home()) / f"{os.path.basename(name)}.lock"  # noqa: PTH119 - a name from a store must not lead elsewhere
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
    """Return `record`, with the status `interrupted` for a running session without its process."""
    process = record.metadata.get(KEY)
    if record.status != "running" or not isinstance(process, str) or not is_gone(process):
        return record
    return replace(record, status="interrupted", error="its process ended while it ran")


def refuse_occupied(record: SessionRecord) -> None:
    """Return if nobody else runs a session, nor waits for an approval in it. Raises `SessionConflict`."""
    process = str(record.metadata.get(KEY) or "")
    verb = "flow fork --at TASK" if is_run(record) else "run --fork"
    fork = f"or go on with a fork of it: amplifier {verb} {record.session_id}"
    if record.status == "running" and process and process != this_process() and not is_gone(process):
        raise SessionConflict(
            record.session_id,
            f"process {process.partition('-')[0]} runs session '{record.session_id}'. Wait until that has ended, "
            f"{fork}",
        )
    if held_of(record.metadata):
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' waits for your approval of a tool call. Answer: amplifier approvals list; "
            f"{fork}",
        )


def refuse_deletion(record: SessionRecord) -> None:
    """Return if a session can be deleted. Raises `SessionConflict` while it runs, or waits for an approval."""
    if as_it_is(record).status == "running":
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' is running. Stop it first; if its process is gone: "
            f"amplifier session delete --force {record.session_id}",
        )
    if held_of(record.metadata):
        what, drop = " of a tool call", "drop its event: amplifier trigger drop"
        if is_run(record):
            what, drop = "", f"end the run: amplifier flow cancel {record.session_id}"
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' waits for your approval{what}. Answer it first: amplifier approvals list; "
            f"or {drop}",
        )


def refuse_use(transfer: StoreTransfer) -> None:
    """Return if nobody is known to use a store. Raises `StoreConflict`, `SessionConflict`."""
    from amplifier_core.store_transfer import read_pages

    if users := transfer.users():
        raise StoreConflict(
            transfer.place,
            f"is in use by {', '.join(users)}. Stop everything that uses it; a killed process counts for a while",
        )
    if transfer.is_empty():
        return
    for page in read_pages(transfer, "sessions", ("session_id", "status", "metadata")):
        for session_id, status, metadata in page.rows:
            process = json.loads(str(metadata)).get(KEY) if status == "running" else None
            if isinstance(process, str) and not is_gone(process):
                raise SessionConflict(
                    str(session_id),
                    f"process {process.partition('-')[0]} runs session '{session_id}' in {transfer.place}. Wait until "
                    f"that has ended",
                )


def _folder(home: Path) -> Path:
    return make_private(home / "processes")
