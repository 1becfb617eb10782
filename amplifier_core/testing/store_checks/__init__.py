"""The contract of a store, as numbered checks that its author runs.

    async def test_the_contract(tmp_path):
        numbers = itertools.count()
        await check_store(lambda: MyStore(tmp_path / str(next(numbers))))

Each check is given a store that is empty. A broken rule raises `AssertionError` with a sentence that names it. Nothing
here needs a test runner; one that parametrises does it over `SESSION_STORE_CHECKS` and `INBOX_CHECKS`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from .admission import ADMISSION_CHECKS
from .inbox import DELIVERY_CHECKS
from .sessions import SESSION_STORE_CHECKS
from .tending import TENDING_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...storage import SessionStore
    from .rules import Check

INBOX_CHECKS = DELIVERY_CHECKS + ADMISSION_CHECKS + TENDING_CHECKS

__all__ = ["INBOX_CHECKS", "SESSION_STORE_CHECKS", "check_store"]


async def check_store(open_store: Callable[[], Awaitable[SessionStore] | SessionStore], *, inbox: bool = True) -> None:
    """Run every check, each on a store of its own that `open_store` makes and that is closed afterwards.

    `inbox=False` leaves out what only background sessions need. Raises `AssertionError`.
    """
    for check in SESSION_STORE_CHECKS + (INBOX_CHECKS if inbox else ()):
        opened = open_store()
        await _run(check, await opened if inspect.isawaitable(opened) else opened)


async def _run(check: Check, store: SessionStore) -> None:
    try:
        await check(store)
    except AssertionError as broken:
        raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken
    finally:
        await store.close()
