"""One owner for the background work of one data folder: a lock that ends with its process, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict

from .paths import data_home, make_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def owner_lock(facts: dict[str, Any]) -> Iterator[None]:
    """Own the data folder while the block runs; `facts` are what `running_owner` tells others.

    Raises `SessionConflict` naming the process that owns it.
    """
    path = _path()
    with path.open("a+", encoding="utf-8") as file:
        path.chmod(0o600)
        if not _acquire(file.fileno()):
            raise SessionConflict(str(data_home()), _told(_facts(path)))
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        json.dump({"pid": os.getpid(), "since": since, **facts}, file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def session_lock(session_id: str) -> Iterator[None]:
    """Be the one who talks in a session while the block runs.

    Raises `SessionConflict` when somebody else does, in this process or in another.
    """
    path = make_private(data_home() / "locks" / "sessions") / session_id
    while True:
        with path.open("a+", encoding="utf-8") as file:
            if not _acquire(file.fileno()):
                raise SessionConflict(session_id, _busy(session_id, _facts(path)))
            if not _is_at(path, file.fileno()):  # who had it has taken it away with them
                continue
            file.truncate(0)
            json.dump({"pid": os.getpid()}, file)
            file.flush()
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _busy(session_id: str, facts: dict[str, Any]) -> str:
    return (
        f"process {facts.get('pid', '?')} talks in session '{session_id}'. Wait until that has ended, "
        f"or go on with a fork of it: amplifier run --fork {session_id}"
    )


def running_owner() -> dict[str, Any] | None:
    """Return what the process that owns the data folder said of itself, None when nobody does."""
    path = _path()
    try:
        with path.open("r+", encoding="utf-8") as file:
            return None if _acquire(file.fileno()) else _facts(path) or None
    except FileNotFoundError:
        return None


def _told(owner: dict[str, Any]) -> str:
    bundles = ", ".join(str(each) for each in owner.get("bundles") or ()) or "bundles"
    return (
        f"process {owner.get('pid', '?')} runs {bundles} since {owner.get('since', '?')} with this data folder "
        f"({data_home()}), and one at a time can. Look at it with: amplifier ps; end it with: amplifier stop --all; "
        f"or use another folder: AMPLIFIER_HOME"
    )


def _path() -> Path:
    return make_private(data_home() / "locks") / "up.lock"


def _acquire(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
