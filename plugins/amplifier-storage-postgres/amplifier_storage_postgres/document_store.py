"""Implement `amplifier_core.documents.DocumentSearch`: a part of `PostgresStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.documents import check_document_names, check_where
from amplifier_core.text_search import read_query

from . import documents
from .deliveries import encode_events
from .part import Part
from .rows import number_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.documents import Document, DocumentChange, DocumentMatch
    from amplifier_core.events import SessionEvent


class PostgresDocuments(Part):
    """The methods of a store about its documents."""

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Make all changes and append `emits` to the log, in one transaction."""
        projects = self._runner.projects
        encoded = [documents.encode_change(change, projects) for change in changes]
        given = {"documents": encoded, "events": encode_events(emits, projects)}
        return number_events(emits, await self._runner.write("write_documents", self._fenced(given)))

    async def document(self, project: str, collection: str, key: str) -> Document | None:
        """Return one document. Raises `StoreDamaged` for one that differs from the written one."""
        check_document_names(collection, key)
        return await self._runner.read(documents.get, self._runner.projects, project, collection, key)

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
        """Return documents of a collection; with `where`, all of it is looked at."""
        check_document_names(collection)
        place, wanted = (project, collection), check_where(where)
        return await self._runner.read(
            documents.find, self._runner.projects, place, wanted, prefix, newest=newest, limit=limit
        )

    async def search_documents(
        self, project: str, collection: str, query: str, *, limit: int = 10
    ) -> list[DocumentMatch]:
        """Return documents with words of a query, the best first."""
        check_document_names(collection)
        words = read_query(query)
        return await self._runner.read(documents.search, self._runner.projects, (project, collection), words, limit)
