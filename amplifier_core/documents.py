"""Define the documents of a store: small records of tools and plugins, changed together with events.

A document belongs to a project, has a key within a collection, and a version that grows with each change. A change
names the version that it replaces, so of two writers one is refused and can read again. `emits` of a write are logged
in the transaction of the changes: nobody hears of a change that is not stored, and no stored change goes unheard.

A store that implements `DocumentStore` also takes `documents=` in `Inbox.commit` and `Inbox.dead_letter`, in the same
transaction; then a refused change raises `DocumentConflict`, and nothing of the call happens.
"""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .events import SessionEvent


@frozen
class Document:
    """One document as it is stored; `data` is JSON."""

    project: str
    collection: str
    key: str
    data: Mapping[str, Any]
    version: int = 1
    """1 for a new document."""
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))


@frozen
class DocumentChange:
    """One change of a document: its new `data`, or None to delete it.

    `version` is the version it replaces; 0 for a new document.
    """

    project: str
    collection: str
    key: str
    data: Mapping[str, Any] | None
    version: int = 0


@runtime_checkable
class DocumentStore(Protocol):
    """Keep documents. Keys and collections are text of 1 to 256 characters; keys sort by their code points."""

    async def write_documents(
        self, changes: Sequence[DocumentChange], *, emits: Sequence[SessionEvent] = ()
    ) -> list[SessionEvent]:
        """Make all changes and append `emits` to the log, in one transaction; return the events with their sequences.

        Raises `DocumentConflict` if a document has another version than its change says, and then changes nothing.
        """
        ...

    async def document(self, project: str, collection: str, key: str) -> Document | None:
        """Return one document, None without it."""
        ...

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
        """Return documents of a collection in the order of their keys, or in the reverse order (`newest`).

        `where` keeps those whose top-level member of `data` is one of these texts, for each of its names; `prefix`
        those whose key begins with it.
        """
        ...
