"""Store sessions, one blocking method for each operation, usable in any thread."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import InvalidSessionId, SessionConflict, SessionExists, SessionNotFound, StoreError
from amplifier_core.storage import SessionRecord

from . import history, listing
from .appending import Appends
from .files import sync_folder
from .folder import make, remove
from .marks import read_line, to_mark
from .records import start_of, to_document
from .tree import Tree, slug

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message


class Sessions:
    """Keep the sessions below a base folder; the caller has validated the ids."""

    def __init__(self, base: Path) -> None:
        self.tree = Tree(base)
        self._appends = Appends(self.tree)

    def create(self, record: SessionRecord, document: Mapping[str, Any]) -> SessionRecord:
        """Make a session's folder; the one of a fork names its source."""
        with self.tree.hold_lock():
            if self.tree.has(record.session_id):
                raise SessionExists(record.session_id)
            self._refuse_circle(record)
            fork_at = self._fork_point(record.fork_of, record.fork_at) if record.fork_of is not None else None
            path = self.tree.path(record.session_id, record.project)
            make(path, {**document, "fork_at": fork_at})
        return self.get(record.session_id)

    def append(self, session_id: str, bodies: Sequence[bytes], at: int) -> int:
        """Add messages at the end, position `at`; return the new count."""
        return _count(session_id, self._appends.append(session_id, bodies, at), at, bodies)

    def append_at_once(self, session_id: str, bodies: Sequence[bytes], at: int) -> int | None:
        """Do as `append` does; None if that would read files anew or wait for another process."""
        there = self._appends.append_at_once(session_id, bodies, at)
        return None if there is None else _count(session_id, there, at, bodies)

    def update(self, session_id: str, changes: Mapping[str, Any]) -> None:
        """Change members of `metadata.json`; those of other tools stay."""
        folder = self.tree.find(session_id)
        with folder.hold_lock() as lock:
            folder.save({**folder.document(), **changes}, to_mark(read_line(lock)))

    def get(self, session_id: str) -> SessionRecord:
        """Return one record."""
        return self.tree.find(session_id).record()

    def find(self, prefix: str, limit: int) -> list[SessionRecord]:
        """Return sessions with ids beginning with `prefix`, newest first."""
        records = [record for _, record in listing.records(self.tree, prefix)]
        return sorted(records, key=lambda record: (record.created, record.session_id), reverse=True)[:limit]

    def list_sessions(self, project: str | None, parent_id: str | None, limit: int | None) -> list[SessionRecord]:
        """Return the sessions of a project (None: of all) and a parent (None: of any), the last updated first.

        A record without a project belongs to the project of its folder.
        """
        here = None if project is None else slug(project)
        records = []
        for name, record in listing.records(self.tree):
            if project is None or record.project == project:
                records.append(record)
            elif not record.project and name == here:
                records.append(replace(record, project=project))
        if parent_id is not None:
            records = [record for record in records if record.parent_id == parent_id]
        return sorted(records, key=lambda record: (record.updated, record.session_id), reverse=True)[:limit]

    def read(self, session_id: str, start: int, stop: int | None) -> list[Message]:
        """Return the messages from `start` up to `stop`."""
        folder = self.tree.find(session_id)
        with folder.reading():
            return history.read(self.tree, folder, start, stop)

    def materialize(self, session_id: str) -> None:
        """Copy the shared messages of a session into its own folder. Raises `StoreDamaged`."""
        self.read(session_id, 0, None)
        self.detach(session_id)

    def detach(self, session_id: str) -> None:
        """Do as `materialize` does, with good and bad messages alike."""
        folder = self.tree.find(session_id)
        with folder.hold_lock() as lock:
            document = folder.document()
            if start_of(document):
                shared = history.segments(self.tree, folder, document)
                lines = [line for segment in shared for line in segment.raw()]
                folder.make_whole(lock, {**document, "whole": True}, lines)

    def delete(self, session_id: str) -> None:
        """Remove a session's folder after copying shared messages to its forks."""
        with self.tree.hold_lock():
            folder = self.tree.find(session_id)
            for fork in self.forks_of(session_id):
                self.detach(fork)
            with folder.hold_lock():
                gone = folder.path.with_name(f".{folder.session_id}.gone")
                remove(gone)
                folder.path.rename(gone)
                sync_folder(gone.parent)
                remove(gone)

    def close(self) -> None:
        """Close the files kept open for appending."""
        self._appends.close()

    def forks_of(self, session_id: str) -> list[str]:
        """Return the sessions sharing messages of this folder."""
        forks = []
        for folder in self.tree.all():
            with suppress(StoreError, SessionNotFound):
                document = folder.document()
                if document.get("fork_of") == session_id and start_of(document):
                    forks.append(folder.session_id)
        return forks

    def _refuse_circle(self, record: SessionRecord) -> None:
        above, passed = record.parent_id, set[str]()
        while above is not None and above != record.session_id:
            passed.add(above)
            above = self._parent_of(above)
            above = None if above in passed else above
        if above is not None:
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' cannot have the parent '{record.parent_id}', which is the session "
                f"itself or descends from it. Choose another id",
            )

    def _parent_of(self, session_id: str) -> str | None:
        try:
            parent = self.tree.find(session_id).document().get("parent_id")
        except (StoreError, SessionNotFound, InvalidSessionId):
            return None
        return parent if isinstance(parent, str) else None

    def _fork_point(self, source: str, at: int | None) -> int:
        count = self.get(source).message_count
        point = count if at is None else at
        if not 0 <= point <= count:
            raise IndexError(f"fork point {point} is not within 0 and {count}")
        return point


def new_document(record: SessionRecord) -> dict[str, Any]:
    """Return `metadata.json` of a new session. Raises `TypeError` for a value without a stored form."""
    names = SessionRecord.__dataclass_fields__
    return to_document({name: getattr(record, name) for name in names})


def changed_document(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed members of an update. Raises `TypeError` for a value without a stored form."""
    return to_document({**changes, "updated": datetime.now(UTC)})


def _count(session_id: str, there: int, at: int, bodies: Sequence[bytes]) -> int:
    """Return the count after an append to `there` messages. Raises `SessionConflict` when they were not `at`."""
    if there != at:
        raise SessionConflict(
            session_id,
            f"session '{session_id}' has {there} messages, not {at}: somebody else wrote it. Resume it to go on",
        )
    return at + len(bodies)
