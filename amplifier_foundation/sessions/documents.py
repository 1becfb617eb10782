"""Give a session the documents of its project: the capability `documents`. A command uses them without a session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.documents import Document, DocumentChange, DocumentMatch, DocumentStore


class SessionDocuments:
    """The documents of one project; `session_id` is the source of the events written with them.

    These events continue the chain of the event that woke the session (`cause`, `depth`), and `publish` hands them to
    the subscribers of this process. Secrets are redacted before anything is stored.
    """

    def __init__(
        self,
        store: DocumentStore,
        project: str,
        session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        publish: Callable[[SessionEvent], None] | None = None,
    ) -> None:
        self.project = project
        self.session_id = session_id
        self.depth = depth
        self._store = store
        self._chain: dict[str, Any] = {"cause": cause, "depth": depth, "project": project}
        self._publish = publish

    def change(
        self,
        collection: str,
        key: str,
        data: Mapping[str, Any] | None,
        version: int = 0,
        searched: Sequence[str] = (),
    ) -> DocumentChange:
        """Return a change of a document of this project, for `write`; see `DocumentChange`."""
        from amplifier_core.documents import DocumentChange

        return DocumentChange(self.project, collection, key, data, version, searched)

    async def write(
        self,
        changes: Sequence[DocumentChange],
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        *,
        event_id: str | None = None,
    ) -> list[SessionEvent]:
        """Make all changes and log the events, each a name with its data, in one transaction; return the logged events.

        The first event gets the id `event_id` unless an earlier one has it. Raises `DocumentConflict` if somebody else
        was faster, and `ValueError` for a change of another project; then nothing is stored.
        """
        safe, emits = self.prepare(changes, events)
        if event_id is not None and emits:
            from ..events.emitting import find_event

            if await find_event(self._store, event_id) is None:
                emits[0] = replace(emits[0], event_id=event_id)
        stored = await self._store.write_documents(safe, emits=emits)
        for event in stored:
            if self._publish is not None:
                self._publish(event)
        return stored

    def prepare(
        self, changes: Sequence[DocumentChange], events: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[list[DocumentChange], list[SessionEvent]]:
        """Return the changes and events to store, without secrets. Raises `ValueError` for another project's change."""
        from amplifier_core.utils.secrets import redact_all

        for change in changes:
            if change.project != self.project:
                raise ValueError(
                    f"document '{change.key}' of '{change.collection}' belongs to project '{change.project}': this "
                    f"session may change those of '{self.project}'"
                )
        safe = [each if each.data is None else replace(each, data=redact_all(dict(each.data))) for each in changes]
        return safe, [
            SessionEvent(name, redact_all(dict(data)), self.session_id, **self._chain) for name, data in events
        ]

    async def get(self, collection: str, key: str) -> Document | None:
        """Return one document, None without it."""
        return await self._store.document(self.project, collection, key)

    async def find(
        self,
        collection: str,
        *,
        where: Mapping[str, Sequence[str]] | None = None,
        prefix: str = "",
        newest: bool = False,
        limit: int | None = None,
    ) -> list[Document]:
        """Return documents of a collection, as `DocumentStore.documents` does."""
        return await self._store.documents(
            self.project, collection, where=where, prefix=prefix, newest=newest, limit=limit
        )

    async def search(self, collection: str, query: str, *, limit: int = 10) -> list[DocumentMatch]:
        """Find documents by their words, as `DocumentSearch.search_documents` does.

        Raises `NotImplementedError` for a store that cannot search.
        """
        find = getattr(self._store, "search_documents", None)
        if find is None:
            raise NotImplementedError(f"{type(self._store).__name__} cannot search documents; storage-sqlite does")
        matches: list[DocumentMatch] = await find(self.project, collection, query, limit=limit)
        return matches


def find_documents(store: object, project: str, **chain: Any) -> SessionDocuments | None:
    """Return the documents of a project, None for a store without any; `chain` goes to `SessionDocuments`."""
    keeps = hasattr(store, "write_documents")  # a store within another one has it without a class that says so
    return SessionDocuments(cast("DocumentStore", store), project, **chain) if keeps else None


def documents_of(store: object, project: str, **chain: Any) -> SessionDocuments:
    """Return the documents of a project as `find_documents` does. Raises `StorageUnsuitable` without any."""
    found = find_documents(store, project, **chain)
    if found is None:
        from ..paths import data_home
        from .storages import DEFAULT_STORAGE, StorageUnsuitable

        kind = type(getattr(store, "storage", store))  # a small storage stands behind an adapter
        text = (
            f"{kind.__name__} keeps no documents, such as issues and notes. Use {DEFAULT_STORAGE} for them: "
            f"AMPLIFIER_STORAGE={DEFAULT_STORAGE}, or amplifier config set storage {DEFAULT_STORAGE}"
        )
        raise StorageUnsuitable(data_home(), text)
    return found
