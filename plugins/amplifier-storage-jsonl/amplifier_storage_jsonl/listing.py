"""List the records of all sessions, ten thousand or more."""

# Names are text here, below an open folder: the system looks up less, and no path object is made.
from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionNotFound, StoreError
from amplifier_core.storage import SessionRecord

from .files import open_closing, translate_errors
from .folder import METADATA, TRANSCRIPT
from .lines import loads
from .records import known_count, to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .folder import SessionFolder
    from .tree import Tree

_MOST = 1 << 16
"""Bytes of `metadata.json` read in one call."""


def records(tree: Tree, prefix: str = "") -> list[tuple[str, SessionRecord]]:
    """Return the records with ids beginning with `prefix`, unordered, each with the name of its project's folder."""
    found = []
    with _pause_collection():
        for sessions, names in tree.ids(prefix):
            project = sessions.parent.name
            with translate_errors(sessions), open_closing(sessions, os.O_RDONLY | os.O_DIRECTORY) as folder:
                for name in names:
                    record = _quickly(folder, name) or _read_record(tree.folder(sessions, name))
                    if record is not None:
                        found.append((project, record))
    return found


@contextmanager
def _pause_collection() -> Iterator[None]:
    """Pause garbage collection: among these records it finds none, and takes a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _quickly(sessions: int, name: str) -> SessionRecord | None:
    """Return a record from `metadata.json` alone; None if this is not enough."""
    try:
        metadata = os.open(f"{name}/{METADATA}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=sessions)
        try:
            line = os.read(metadata, _MOST)
            document = loads(line.rstrip(b"\r\n"))
            transcript = os.stat(f"{name}/{TRANSCRIPT}", dir_fd=sessions)
            count = None if document.get("whole") else known_count(document, transcript)
            if count is None:
                return None
            return to_record(document, name, count, transcript, lambda: os.fstat(metadata).st_mtime)
        finally:
            os.close(metadata)
    except (OSError, ValueError):
        return None


def _read_record(folder: SessionFolder) -> SessionRecord | None:
    """Return the record; a damaged folder gets one with its error: a list neither fails nor hides it."""
    if not folder.exists():
        return None
    try:
        return folder.record()
    except (StoreError, SessionNotFound) as error:
        return SessionRecord(folder.session_id, status="interrupted", error=str(error))
