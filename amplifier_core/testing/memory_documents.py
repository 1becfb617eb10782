"""Keep the documents of the store in memory."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..documents import Document, DocumentMatch, check_document_names, check_where, has_members
from ..errors import DocumentConflict
from ..text_search import contains, cut_snippet, fold_words, join_members, rank, read_query
from .memory_news import MemoryNews

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..documents import DocumentChange
    from ..events import SessionEvent

    Place = tuple[str, str, str]
    Documents = dict[Place, Document]
    Searched = dict[Place, tuple[str, ...]]
    """The members that a search looks in; the document that was changed last is the last one."""


class MemoryDocuments(MemoryNews, ABC):
    """Implement `DocumentSearch` without a file; the rest of the store keeps the log of events."""

    def __init__(self) -> None:
        super().__init__()
        self._documents: Documents = {}
        self._searched: Searched = {}

    @abstractmethod
    def _append_to_log(self, events: Sequence[SessionEvent]) -> list[SessionEvent]: ...

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Make all changes and append `emits` to the log."""
        self._documents, self._searched = self._change_documents(changes)
        return self._append_to_log(emits)

    async def document(self, project: str, collection: str, key: str) -> Document | None:
        """Return one document, None without it."""
        check_document_names(collection, key)
        return deepcopy(self._documents.get((project, collection, key)))

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
        """Return documents of a collection in the order of their keys, or in the reverse order."""
        check_document_names(collection)
        wanted = check_where(where)
        place = {"project": project, "collection": collection}
        of_it = [each for each in self._documents.values() if has(each, place) and each.key.startswith(prefix)]
        found = [each for each in of_it if has_members(each.data, wanted)]
        return deepcopy(sorted(found, key=lambda document: document.key, reverse=newest)[:limit])

    async def search_documents(
        self, project: str, collection: str, query: str, *, limit: int = 10
    ) -> list[DocumentMatch]:
        """Return documents with words of a query, the best first; reads every document of the collection."""
        check_document_names(collection)
        words = read_query(query)
        places = [place for place in self._searched if place[:2] == (project, collection)]
        texts = [join_members(self._documents[place].data, self._searched[place]) for place in places]
        folded = [fold_words(text) for text in texts]
        found = [[number for number, text in enumerate(folded) if contains(text, word)] for word in words]
        return [
            DocumentMatch(deepcopy(self._documents[places[number]]), cut_snippet(texts[number], words))
            for number in rank(found, limit=limit)
        ]

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def _change_documents(self, changes: Sequence[DocumentChange]) -> tuple[Documents, Searched]:
        """Return the documents after all changes. Raises `DocumentConflict`."""
        changed, searched = dict(self._documents), dict(self._searched)
        for change in changes:
            check_document_names(change.collection, change.key)
            place = change.project, change.collection, change.key
            before = changed.pop(place, None)
            is_lost = before is None and change.data is None  # nothing is there to delete
            if is_lost or (before.version if before else 0) != change.version:
                raise DocumentConflict(change.collection, change.key)
            searched.pop(place, None)
            if change.data is not None:
                changed[place] = Document(*place, copy_json(change.data), change.version + 1, self._now())
                if change.searched:
                    searched[place] = tuple(change.searched)
        return changed, searched


def copy_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy made through JSON. Raises `TypeError`, `ValueError` for other values."""
    copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    return copy


def has(item: object, wanted: Mapping[str, object]) -> bool:
    """Return whether an item has these values; None is any."""
    return all(value is None or getattr(item, name) == value for name, value in wanted.items())
