"""One owner for the background work of one project: a lock that ends with its process, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict

from .paths import data_home, make_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def project_lock(project: str, facts: dict[str, Any]) -> Iterator[None]:
    """Own `project` while the block runs; `facts` are what `running_owners` tells others.

    Raises `SessionConflict` naming the process that owns it.
    """
    path = _folder() / f"up-{sha256(project.encode()).hexdigest()[:16]}.lock"
    with path.open("a+", encoding="utf-8") as file:
        path.chmod(0o600)
        if not _acquire(file.fileno()):
            owner = _facts(path)
            raise SessionConflict(
                project,
                f"{project} is run by process {owner.get('pid', '?')} since {owner.get('since', '?')}. "
                f"Stop that one first, or look at it with: amplifier ps",
            )
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        json.dump({"pid": os.getpid(), "project": project, "since": since, **facts}, file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def running_owners() -> list[dict[str, Any]]:
    """Return what each process that owns a project said of itself, oldest first."""
    owners = []
    for path in sorted(_folder().glob("up-*.lock")):
        with path.open("r+", encoding="utf-8") as file:
            if not _acquire(file.fileno()):
                owners.append(_facts(path))
    return sorted((owner for owner in owners if owner), key=lambda owner: str(owner.get("since")))


def _folder() -> Path:
    return make_private(data_home() / "locks")


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
