"""Check the contract of a store with numbered checks for its author to run.

    async def test_the_contract(tmp_path):
        numbers = itertools.count()
        await check_store(lambda: MyStore(tmp_path / str(next(numbers))))

Each check gets an empty store. A broken rule raises `AssertionError` with a sentence naming the rule. Nothing here
needs a test runner; pytest can parametrise a test over `SESSION_STORE_CHECKS`, `INBOX_CHECKS`, `DOCUMENT_CHECKS`
and `SEARCH_CHECKS`. `store_checks.shared` checks a store that several processes use.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from ...documents import DocumentSearch, DocumentStore
from .administration import ADMINISTRATION_CHECKS
from .admission import ADMISSION_CHECKS
from .documents import DOCUMENT_CHECKS, SEARCH_CHECKS
from .inbox import DELIVERY_CHECKS
from .sessions import SESSION_STORE_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...storage import SessionStore
    from .rules import Check

INBOX_CHECKS = DELIVERY_CHECKS + ADMISSION_CHECKS + ADMINISTRATION_CHECKS

__all__ = ["DOCUMENT_CHECKS", "INBOX_CHECKS", "SEARCH_CHECKS", "SESSION_STORE_CHECKS", "check_store"]


async def check_store(open_store: Callable[[], Awaitable[SessionStore] | SessionStore], *, inbox: bool = True) -> None:
    """Run every check on a new store from `open_store`, and close each store. Raises `AssertionError`.

    `inbox=False` leaves out the checks of an `Inbox`. An `Inbox` that is a `DocumentStore` or a `DocumentSearch` passes
    the checks of that, too.
    """
    for check in SESSION_STORE_CHECKS + (INBOX_CHECKS + DOCUMENT_CHECKS + SEARCH_CHECKS if inbox else ()):
        opened = open_store()
        store = await opened if inspect.isawaitable(opened) else opened
        kind = DocumentStore if check in DOCUMENT_CHECKS else DocumentSearch if check in SEARCH_CHECKS else None
        if kind is not None and not isinstance(store, kind):
            await store.close()
            break
        await _run(check, store)


async def _run(check: Check, store: SessionStore) -> None:
    try:
        await check(store)
    except AssertionError as broken:
        raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken
    finally:
        await store.close()
