"""Check the contract of a store with numbered checks for its author to run.

    async def test_the_contract(tmp_path):
        numbers = itertools.count()
        await check_store(lambda: MyStore(tmp_path / str(next(numbers))))

Each check gets an empty store. A broken rule raises `AssertionError` with a sentence naming the rule. Nothing here
needs a test runner; pytest can parametrise a test over `SESSION_STORE_CHECKS`, `INBOX_CHECKS`, `DOCUMENT_CHECKS`,
`SEARCH_CHECKS`, `RECEIVING_CHECKS`, `VIEW_CHECKS`, `MESSAGE_CHECKS`, `QUERY_CHECKS` and `QUEUE_CHECKS`.
`store_checks.shared` checks a store of several processes.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ...documents import DocumentSearch, DocumentStore
from ...due_queues import DueQueues
from ...session_queries import SessionQueries
from ...shared_stores import ReceivingStore
from ...store_views import MessageSearch, StoreViews
from .administration import ADMINISTRATION_CHECKS
from .admission import ADMISSION_CHECKS
from .documents import DOCUMENT_CHECKS, SEARCH_CHECKS
from .inbox import DELIVERY_CHECKS
from .queries import QUERY_CHECKS
from .queues import QUEUE_CHECKS
from .receiving import RECEIVING_CHECKS
from .sessions import SESSION_STORE_CHECKS
from .views import MESSAGE_CHECKS, VIEW_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...storage import SessionStore
    from .rules import Check

INBOX_CHECKS = DELIVERY_CHECKS + ADMISSION_CHECKS + ADMINISTRATION_CHECKS

OPTIONAL: dict[type[Any], Sequence[Check]] = {
    DocumentStore: DOCUMENT_CHECKS,
    DocumentSearch: SEARCH_CHECKS,
    ReceivingStore: RECEIVING_CHECKS,
    StoreViews: VIEW_CHECKS,
    MessageSearch: MESSAGE_CHECKS,
    SessionQueries: QUERY_CHECKS,
    DueQueues: QUEUE_CHECKS,
}
"""The checks of what an `Inbox` may be besides."""

__all__ = [
    "DOCUMENT_CHECKS",
    "INBOX_CHECKS",
    "MESSAGE_CHECKS",
    "QUERY_CHECKS",
    "QUEUE_CHECKS",
    "RECEIVING_CHECKS",
    "SEARCH_CHECKS",
    "SESSION_STORE_CHECKS",
    "VIEW_CHECKS",
    "check_store",
]


async def check_store(open_store: Callable[[], Awaitable[SessionStore] | SessionStore], *, inbox: bool = True) -> None:
    """Run every check on a new store from `open_store`, and close each store. Raises `AssertionError`.

    `inbox=False` leaves out the checks of an `Inbox`. An `Inbox` that is a `DocumentStore`, a `DocumentSearch`, a
    `ReceivingStore`, a `StoreViews`, a `MessageSearch`, a `SessionQueries` or a `DueQueues` passes the checks of that,
    too.
    """
    for check in SESSION_STORE_CHECKS + (INBOX_CHECKS if inbox else ()):
        await _run(check, await _open(open_store))
    for kind, checks in OPTIONAL.items() if inbox else ():
        for check in checks:
            store = await _open(open_store)
            if not isinstance(store, kind):
                await store.close()
                break
            await _run(check, store)


async def _open(open_store: Callable[[], Awaitable[SessionStore] | SessionStore]) -> SessionStore:
    opened = open_store()
    return await opened if inspect.isawaitable(opened) else opened


async def _run(check: Check, store: SessionStore) -> None:
    try:
        await check(store)
    except AssertionError as broken:
        raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken
    finally:
        await store.close()
