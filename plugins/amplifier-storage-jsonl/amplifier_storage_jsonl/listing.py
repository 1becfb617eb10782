"""The records of all sessions, of which there may be ten thousand."""

# Names are text here, below a folder that is open: there is less for the system to look up, and no path is made.
from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionNotFound, StoreError
from amplifier_core.storage import SessionRecord

from .files import opened, translated
from .folder import METADATA, TRANSCRIPT
from .lines import loads
from .records import counted, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .folder import SessionFolder
    from .tree import Tree

_MOST = 1 << 16
"""Bytes of a `metadata.json` that is read at once."""


def records(tree: Tree, prefix: str = "") -> list[tuple[str, SessionRecord]]:
    """Return the records whose ids begin with `prefix`, in no order, each with the name of its project's folder."""
    found = []
    with _uncollected():
        for sessions, names in tree.ids(prefix):
            project = sessions.parent.name
            with translated(sessions), opened(sessions, os.O_RDONLY | os.O_DIRECTORY) as folder:
                for name in names:
                    record = _quickly(folder, name) or _shown(tree.folder(sessions, name))
                    if record is not None:
                        found.append((project, record))
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage: among records that are made to be kept, that takes a fifth of the time and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _quickly(sessions: int, name: str) -> SessionRecord | None:
    """Return a record that `metadata.json` tells all of; None when it takes another look, for whatever reason."""
    try:
        metadata = os.open(f"{name}/{METADATA}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=sessions)
        try:
            line = os.read(metadata, _MOST)
            document = loads(line.rstrip(b"\r\n"))
            transcript = os.stat(f"{name}/{TRANSCRIPT}", dir_fd=sessions)
            count = None if document.get("whole") else counted(document, transcript)
            if count is None:
                return None
            return to_record(document, name, count, transcript, lambda: os.fstat(metadata).st_mtime)
        finally:
            os.close(metadata)
    except (OSError, ValueError):
        return None


def _shown(folder: SessionFolder) -> SessionRecord | None:
    """Return the record; of a damaged folder one that says so: a list must neither fail for it nor hide it."""
    if not folder.exists():
        return None
    try:
        return folder.record()
    except (StoreError, SessionNotFound) as error:
        return SessionRecord(folder.session_id, status="interrupted", error=str(error))
