"""Define what people's views ask of a store: pages of long lists, counts over time, news, and words in messages.

A store may implement `StoreViews`, `MessageSearch`, both or neither; `amplifier_core.testing.store_checks` tests it
against both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .contracts import Contract
from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from .storage import Delivery, DeliveryState, SessionRecord, Status

__all__ = ["DeliveryRate", "MessageMatch", "MessageMatches", "MessageSearch", "StoreViews", "WordSearch", "quote_words"]

_AROUND = 10_000
"""Characters around a word in which secrets are looked for."""


@frozen
class DeliveryRate:
    """Count the deliveries of a queue that came within one step of time, by their present state."""

    project: str
    queue: str
    at: datetime
    """The beginning of the step, UTC: `since` and a whole number of steps."""
    state: DeliveryState
    count: int


@frozen
class MessageMatch:
    """A message with words of a query."""

    session_id: str
    """The session that wrote it; once that is deleted, a fork that has it."""
    project: str
    position: int
    """From 0; texts call the first message m1."""
    role: str
    snippet: str
    """One line of its text, about 160 characters around the first of the words, without secrets."""


@frozen
class MessageMatches:
    """The messages that a search has found, best first."""

    matches: Sequence[MessageMatch] = ()
    complete: bool = True
    """Whether every stored message was looked at; otherwise older ones are not indexed yet."""


@runtime_checkable
class StoreViews(Protocol, metaclass=Contract):
    """Show long lists page by page, and tell of news."""

    def watch_commits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` after each commit, of this process and of others; return a function that ends this.

        It comes at most 50 ms later, from any thread, and once for commits close together. A call without news is
        possible. After the end, which may be called twice, a last call may still come.
        """
        ...

    async def delivery_page(
        self,
        *,
        project: str | None = None,
        queue: str | None = None,
        states: Collection[DeliveryState] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Return deliveries, the last arrived first; of these states, or of all.

        `before` is the `delivery_id` at the end of the page before. A damaged delivery is listed with the damage as its
        reason. Raises `DeliveryNotFound` for an unknown `before`.
        """
        ...

    async def session_page(
        self,
        *,
        project: str | None = None,
        statuses: Collection[Status] = (),
        text: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[SessionRecord]:
        """Return sessions, the last changed first; those with `text` in their name, id or bundle, by `fold_text`.

        `before` is the `session_id` at the end of the page before: the page begins after its present place. A damaged
        record is listed with its error, as by `SessionStore.sessions`. Raises `SessionNotFound` for an unknown
        `before`.
        """
        ...

    async def delivery_rates(self, *, since: datetime, step: float, project: str | None = None) -> list[DeliveryRate]:
        """Count the deliveries that came since a time, for each queue, state and step of so many seconds.

        They are ordered by project, queue, time and state; steps without deliveries are left out. Raises `ValueError`
        for a step that is not above zero.
        """
        ...


@runtime_checkable
class MessageSearch(Protocol, metaclass=Contract):
    """Find messages by their words, as `DocumentSearch` finds documents. Any text is a query."""

    async def search_messages(self, query: str, *, project: str | None = None, limit: int = 20) -> MessageMatches:
        """Return messages of all sessions, or of one project, with words of `query`, the best first.

        A message shared by forks is found once; those of deleted sessions are not found. Messages that are not indexed
        yet are indexed first, the newest first, for at most about a second.
        """
        ...

    async def index_messages(self, limit: int = 1000) -> int:
        """Index at most `limit` messages that are not indexed yet, the newest first; return their number, 0 at the end.

        Turns wait for this no longer than for a short write of another session.
        """
        ...


@runtime_checkable
class WordSearch(Protocol, metaclass=Contract):
    """Name the words that a text is a part of, and the forks that share a message; a `MessageSearch` finds messages."""

    async def find_words(self, part: str, *, limit: int = 100) -> list[str]:
        """Return indexed words of messages with `part` in them, at most `limit`, sorted; both in folded form."""
        ...

    async def find_sharing(self, session_id: str, position: int, *, limit: int = 100) -> list[str]:
        """Return the ids of the sessions that have a message of a session, itself too, at most `limit`."""
        ...


def quote_words(text: str, words: Sequence[str]) -> str:
    """Return one line of a text around the first of the words of a query, without secrets."""
    from .text_search import cut_snippet
    from .utils.secrets import redact_text

    folded = text.casefold()
    found = [at for word in words if (at := folded.find(word.split(" ")[0])) >= 0]
    start = max(0, min(found, default=0) - _AROUND)
    return cut_snippet(redact_text(text[start : start + 2 * _AROUND]), words)
