"""Define the documents of a store: small records of tools and plugins, changed together with events.

A document belongs to a project, has a key within a collection, and a version that grows with each change. A change
names the version that it replaces, so of two writers one is refused and can read again. `emits` of a write are logged
in the transaction of the changes: nobody hears of a change that is not stored, and no stored change goes unheard.

A store that implements `DocumentStore` also takes `documents=` in `Inbox.commit` and `Inbox.dead_letter`, in the same
transaction; then a refused change raises `DocumentConflict`, and nothing of the call happens.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from .contracts import Contract
from .errors import DocumentConflict
from .frozen import frozen
from .permissions.hidden import is_printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from .events import SessionEvent

T = TypeVar("T")

LONGEST_NAME = 256
"""Characters of the longest key or collection."""
TRIES = 100
"""Attempts at a change while others change the same documents: each conflict is somebody's success."""


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
    searched: Sequence[str] = ()
    """The members of `data` that `DocumentSearch` looks in, texts and lists of texts; none: it finds nothing."""


@frozen
class DocumentMatch:
    """One document that a search has found, and one line of its text around the first of the words."""

    document: Document
    snippet: str


@runtime_checkable
class DocumentStore(Protocol, metaclass=Contract):
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


@runtime_checkable
class DocumentSearch(DocumentStore, Protocol, metaclass=Contract):
    """Keep documents, and find them by the words of their texts; `text_search` says what a word is.

    A change with `searched` and what the search finds are one transaction.
    """

    async def search_documents(
        self, project: str, collection: str, query: str, *, limit: int = 10
    ) -> list[DocumentMatch]:
        """Return documents of a collection with any word of a query, at most `limit`.

        Any text is a query. A word counts the more, the fewer documents have it; of equal documents the one that was
        changed last comes first. Of a word in very many documents a store may look at the newest ones alone, but for
        documents with all words.
        """
        ...


def check_document_names(collection: str, *keys: str) -> None:
    """Raise `ValueError` unless the collection and the keys are text of 1 to 256 characters."""
    for what, name in (("collection", collection), *(("key", key) for key in keys)):
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
            raise ValueError(f"{what} {name!r} of a document is not a text of 1 to {LONGEST_NAME} characters")


def check_where(where: Mapping[str, Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """Return a `where` of `DocumentStore.documents`, {} for None.

    Raises `ValueError` for a name with a quote, a backslash or a character that cannot be printed, and for a text in
    place of a list of texts.
    """
    for name, texts in (where or {}).items():
        if not name or not is_printable(name) or '"' in name or "\\" in name:
            raise ValueError(f"where: {name!r} is not the name of a member. Use a name without quotes and backslashes")
        if isinstance(texts, str):
            raise ValueError(f"where: {name}: {texts!r} is a text. Give a list of texts")
    return {name: tuple(texts) for name, texts in (where or {}).items()}


def has_members(data: Mapping[str, Any], where: Mapping[str, Sequence[str]]) -> bool:
    """Return whether each named member of `data` is one of its texts."""
    return all(data.get(name) in texts for name, texts in where.items())


@frozen
class DocumentEdit:
    """Changes of documents with the events that tell of them: pairs of a name and data."""

    changes: Sequence[DocumentChange] = ()
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()


class Documents(Protocol):
    """The documents of one project for one session: its capability `documents`. Its events come from the session."""

    project: str
    session_id: str | None
    """The session; None for a person at a command line."""
    depth: int
    """The length of the chain of causes that its events continue."""

    async def get(self, collection: str, key: str) -> Document | None:
        """Return one document, None without it."""
        ...

    async def find(
        self,
        collection: str,
        *,
        where: Mapping[str, Sequence[str]] | None = None,
        prefix: str = "",
        newest: bool = False,
        limit: int | None = None,
    ) -> list[Document]:
        """Return documents as `DocumentStore.documents` does."""
        ...

    async def search(self, collection: str, query: str, *, limit: int = 10) -> list[DocumentMatch]:
        """Find documents as `DocumentSearch.search_documents` does. Raises `NotImplementedError` where none is."""
        ...

    def change(
        self,
        collection: str,
        key: str,
        data: Mapping[str, Any] | None,
        version: int = 0,
        searched: Sequence[str] = (),
    ) -> DocumentChange:
        """Return a change of a document of the project."""
        ...

    async def write(
        self,
        changes: Sequence[DocumentChange],
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        *,
        event_id: str | None = None,
    ) -> list[SessionEvent]:
        """Make all changes and emit the events, in one transaction. Raises `DocumentConflict`.

        The first event gets the id `event_id` unless an earlier one has it: with the key of a tool call, an open call
        counts as done where its process was killed behind the write.
        """
        ...


async def retry_conflicts(attempt: Callable[[], Awaitable[T]]) -> T:
    """Await an attempt that reads documents and changes them, again after each conflict; return what it returns.

    Raises `DocumentConflict` after `TRIES` attempts.
    """
    for _ in range(TRIES - 1):
        with suppress(DocumentConflict):
            return await attempt()
    return await attempt()
