"""Tell whether a process still runs a session, and who may write its status.

A process holds a lock as long as it lives, however it ends. The record of a session names that lock, and the host: the
data folder with the lock. A session without its lock is interrupted, also when its record says "running". A process of
another host counts as alive: this one cannot know.

A process lives on after a turn whose end it could not store. So the record also names the session at the top, whose
lock (`session_lock`) is held while a turn of the session runs; without that lock it is free (`is_running`), though its
status stays as it is until somebody goes on with it, or its process ends. Attempts of background sessions hold claims
instead, and name no such session.

Only the process in the record writes the status, from the beginning of a turn to its end. Whoever is too late with its
messages has lost the session, and changes nothing of the record (`RunningMetadata`).
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict, StoreConflict, StoreDamaged, StoreUnavailable
from amplifier_core.ids import BEFORE_HOST, host_of
from amplifier_core.process_ends import at_process_end
from amplifier_core.process_forks import close_in_forks
from amplifier_core.storage import SessionRecord

from ..paths import data_home, make_private
from .held import held_of
from .lock import holder_of, read_holder
from .runs import is_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.store_transfer import StoreTransfer

KEY = "process"
"""The member of a record's metadata."""
LOCK = "lock"
"""The member beside it: the process, and the session whose lock it holds meanwhile; another process's is void."""
_HOST = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
WAITING = "waiting"
"""The status that people see of a session in an unanswered question; its record says that it is interrupted."""


def this_process() -> str:
    """Return the name of this process; others can tell by it whether the process lives."""
    return _hold_lock(os.environ.get("AMPLIFIER_HOME"), os.getpid())


@cache
def _hold_lock(chosen: str | None, pid: int) -> str:  # `chosen` is in the cache key: finding the folder is slow
    name = f"{pid}-{os.urandom(6).hex()}"
    home = data_home()
    path = _folder(home) / f"{name}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    file = close_in_forks(os.fdopen(lock, "rb"))

    def leave() -> None:
        if os.getpid() == pid:  # in a fork, the file is the parent's
            with suppress(OSError):  # the folder is away; without its lock, the file says nothing
                path.unlink(missing_ok=True)
            file.close()

    at_process_end(leave)
    return f"{name}{BEFORE_HOST}{_read_host(home)}"


def this_host() -> str:
    """Return the id of this host, that of its data folder: the machine's name and something random.

    Raises `StoreDamaged` when the file with it is damaged.
    """
    return _read_host(data_home())


@cache
def _read_host(home: Path) -> str:
    path, name = make_private(home) / "host", re.sub(r"[^A-Za-z0-9]+", "-", platform.node())[:24].strip("-")
    host = f"{name or 'host'}-{os.urandom(4).hex()}"
    with suppress(FileNotFoundError):
        return _checked_host(path)
    from ..documents.files import replace_file  # not at import: a data folder gets its id once

    draft = path.with_name(f"host.{host}")
    replace_file(draft, host.encode("ascii"), 0o600)  # durable: a power cut leaves no empty file
    with suppress(FileExistsError):  # another process was faster
        path.hardlink_to(draft)
    draft.unlink()
    return _checked_host(path)


def _checked_host(path: Path) -> str:
    """Return the id in a file. No other one is made for a damaged one: the work of this host would be a stranger's."""
    found = _HOST.fullmatch(path.read_bytes()[:1000].strip())
    if found is None:
        raise StoreDamaged(
            path,
            "is damaged: it holds no id of a host, such as web1-1a2b3c4d. Put back a copy of it; without one, "
            "remove it. This data folder is a new host then; it takes over what the old one left in a shared store "
            "with: amplifier host adopt ID",
        )
    return found[0].decode()


def is_gone(process: str) -> bool:
    """Return whether the process of that name has ended; False for one of another host, or of another user."""
    host = host_of(process)
    if host and host != this_host():
        return False
    name = process.partition(BEFORE_HOST)[0]
    path = _folder(data_home()) / f"{os.path.basename(name)}.lock"  # noqa: PTH119 - a name from a store must not lead elsewhere
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # root's, who may run beside: what is not known to have ended is not taken over
        return False
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


def running_members(lock: str = "") -> dict[str, Any]:
    """Return the members of the metadata for a session that this process runs, under the lock of session `lock`."""
    process = this_process()
    return {KEY: process, LOCK: [process, lock] if lock else None}


def as_it_is(record: SessionRecord) -> SessionRecord:
    """Return `record`, with the status `interrupted` for a running session that its process runs no longer.

    A turn can end after its record was read. So a lock without a holder tells nothing here, as long as the process
    lives. The next holder of the lock has read the record since, and knows: the end was not stored.
    """
    process, why = record.metadata.get(KEY), ""
    if record.status == "running" and isinstance(process, str):
        if is_gone(process):
            why = "its process ended while it ran"
        elif (holder := _find_holder(record.metadata)) and process != holder == this_process():
            why = "its turn ended, and the end could not be stored"
    return replace(record, status="interrupted", error=why) if why else record


def is_running(record: SessionRecord) -> bool:
    """Return whether a session runs now: its record says so, its process lives, and holds the lock named there."""
    process = record.metadata.get(KEY)
    if record.status != "running" or (isinstance(process, str) and is_gone(process)):
        return False
    return _find_holder(record.metadata) in (None, process)


def _find_holder(metadata: Mapping[str, Any]) -> str | None:
    """Return the process that holds the lock of a running session, '' for nobody; None: no lock, or not known."""
    process, lock = metadata.get(KEY), metadata.get(LOCK)
    if not isinstance(process, str) or other_host(process) or not isinstance(lock, list) or lock[:1] != [process]:
        return None
    try:
        facts = read_holder(os.path.basename(str(lock[-1])))  # noqa: PTH119 - a name from a store must not lead elsewhere
    except (OSError, StoreUnavailable):  # another user's
        return None
    return "" if facts is None else facts.get("process")


def status_of(record: SessionRecord) -> str:
    """Return the status of a session as people see it."""
    status = as_it_is(record).status
    return WAITING if status == "interrupted" and held_of(record.metadata) else status


def refuse_running(record: SessionRecord) -> None:
    """Return if no other process runs a session. Raises `SessionConflict`."""
    process = str(record.metadata.get(KEY) or "")
    if is_running(record) and process and process != this_process():
        host = other_host(process)
        adopt = f"; if that host is gone for good: amplifier host adopt {host}" if host else ""
        raise SessionConflict(
            record.session_id,
            f"process {describe(process)} runs session '{record.session_id}'. Wait until that has ended, "
            f"{_advise_fork(record)}{adopt}",
        )


def refuse_occupied(record: SessionRecord) -> None:
    """Return if nobody else runs a session, nor waits for an approval in it. Raises `SessionConflict`."""
    refuse_running(record)
    if held_of(record.metadata):
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' waits for your approval of a tool call. Answer: amplifier approvals list; "
            f"{_advise_fork(record)}",
        )


def _advise_fork(record: SessionRecord) -> str:
    verb = "flow fork --at TASK" if is_run(record) else "run --fork"
    return f"or go on with a fork of it: amplifier {verb} {record.session_id}"


def refuse_deletion(record: SessionRecord, *, force: bool = False, delivery_id: str = "ID") -> None:
    """Return if a session can be deleted. Raises `SessionConflict` while it runs, or waits for an approval.

    `force` deletes it in these cases, too; never one that a process of this host holds. `delivery_id` is that of the
    event that waits for the approval, for the text of the error.
    """
    if (process := holder_of(record.session_id)) is not None:
        raise SessionConflict(
            record.session_id,
            f"process {process} has session '{record.session_id}' open: at a terminal, in an editor or on a page. "
            f"Close it there first",
        )
    if force:
        return
    if is_running(record):
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' is running. Stop it first; if its process is gone: "
            f"amplifier session delete --force {record.session_id}",
        )
    if held_of(record.metadata):
        what, drop = " of a tool call", f"drop its event: amplifier trigger drop {delivery_id}"
        if is_run(record):
            what, drop = "", f"end the run: amplifier flow cancel {record.session_id}"
        raise SessionConflict(
            record.session_id,
            f"session '{record.session_id}' waits for your approval{what}. Answer it first: amplifier approvals list; "
            f"or {drop}",
        )


def refuse_use(transfer: StoreTransfer) -> None:
    """Return if nobody is known to use a store. Raises `StoreConflict`, `SessionConflict`.

    The store knows the processes of other hosts. Those of this one hold locks.
    """
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
            known = json.loads(str(metadata)) if status == "running" else {}
            record, process = SessionRecord(str(session_id), status="running", metadata=known), known.get(KEY)
            if isinstance(process, str) and not other_host(process) and is_running(record):
                raise SessionConflict(
                    str(session_id),
                    f"process {describe(process)} runs session '{session_id}' in {transfer.place}. Wait until that has "
                    f"ended",
                )


def describe(process: str) -> str:
    """Return the number of a process, and its host if that is another one."""
    number, host = process.partition("-")[0], other_host(process)
    return f"{number} of host {host}" if host else number


def other_host(process: str) -> str:
    """Return the host of a process, '' for one of this host."""
    host = host_of(process)
    return "" if host == this_host() else host


def _folder(home: Path) -> Path:
    return make_private(home / "processes")
