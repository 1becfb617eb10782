"""Implement `amplifier_core.documents.DocumentSearch`: a part of `SqliteStore`.

Most programs use no documents, so the first use imports what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from . import inbox
from .rows import EVENTS, encode, number_events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.documents import Document, DocumentChange, DocumentMatch
    from amplifier_core.events import SessionEvent

    from .documents import Change
    from .reader import Reader
    from .writer import Writer

T = TypeVar("T")


class SqliteDocuments(ABC):
    """The methods of a store about its documents."""

    _writer: Writer
    _reader: Reader

    def _encode(self, changes: Sequence[DocumentChange]) -> list[Change]:
        if not changes:
            return []
        from .documents import encode_change

        return list(map(encode_change, changes))

    @abstractmethod
    async def _read(self, size: int | None, query: Callable[[sqlite3.Connection], T]) -> T: ...

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Make all changes and append `emits` to the log, in one transaction."""
        encoded = self._encode(changes)
        rows = [EVENTS.row(event) for event in emits]

        def write(db: sqlite3.Connection) -> list[int]:
            for change in encoded:
                change.make(db)
            return inbox.emit(db, rows)

        return number_events(emits, await self._writer.run(write))

    async def document(self, project: str, collection: str, key: str) -> Document | None:
        """Return one document. Raises `StoreDamaged` for one that differs from the written one."""
        from amplifier_core.documents import check_document_names

        from . import documents

        check_document_names(collection, key)
        values = {**encode({"project": project, "collection": collection}), "key": documents.encode_key(key)}
        return self._reader.run(lambda db: documents.get(db, values))

    async def documents(
        self,
        project: str,
        collection: str,
        *,
        where: Mapping[str, Sequence[str]] | None = None,
        prefix: str = "",
        newest: bool = False,
        limit: int | None = None,
    ) -> list[Document]:
        """Return documents of a collection; with `where`, all of it is read."""
        from amplifier_core.documents import check_document_names, check_where

        from . import documents

        check_document_names(collection)
        place, wanted = encode({"project": project, "collection": collection}), check_where(where)
        first, size = documents.encode_key(prefix), None if wanted else limit
        return await self._read(size, lambda db: documents.find(db, place, wanted, first, newest=newest, limit=limit))

    async def search_documents(
        self, project: str, collection: str, query: str, *, limit: int = 10
    ) -> list[DocumentMatch]:
        """Return documents with words of a query, the best first."""
        from amplifier_core.documents import check_document_names
        from amplifier_core.text_search import read_query

        from . import searching

        check_document_names(collection)
        place, words = encode({"project": project, "collection": collection}), read_query(query)
        return await self._read(None, lambda db: searching.search(db, place, words, limit))
