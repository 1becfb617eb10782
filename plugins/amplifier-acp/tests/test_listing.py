"""Lists of sessions read no more of the store than they show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_acp.listing import PAGE, Lists
from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.store_views import STEP
from amplifier_storage_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


class Counting(SqliteStore):
    """A store that counts the sessions that it gives."""

    given = 0
    failure: BaseException | None = None
    """Raised once by the next read."""

    async def sessions(self, **wanted: Any) -> Any:
        found = await super().sessions(**wanted)
        self.given += len(found)
        return found

    async def session_page(self, **wanted: Any) -> Any:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        found = await super().session_page(**wanted)
        self.given += len(found)
        return found


async def test_a_page_reads_no_whole_store_and_the_pages_are_whole(tmp_path: Path) -> None:
    store = Counting(tmp_path / "amplifier.db", 5.0)
    names = [f"s{number}" for number in range(2 * STEP + 20)]
    for name in names:
        await store.create(SessionRecord(name, name=name, project="/p", turn_count=1))
        await store.append(name, [{"role": "user", "content": "hello"}], at=0)
    lists = Lists(store)
    first, again = await asyncio.gather(lists.take_page("/p", None), lists.take_page("/p", None))
    assert first == again
    assert (len(first["sessions"]), store.given) == (PAGE, 2 * STEP)
    pages, cursor = [first], first.get("nextCursor")
    while cursor is not None:
        pages.append(await lists.take_page("/p", cursor))
        cursor = pages[-1].get("nextCursor")
    assert [each["sessionId"] for page in pages for each in page["sessions"]] == names[::-1]
    await store.close()


@pytest.mark.parametrize("failure", [StoreUnavailable("store", "is locked"), asyncio.CancelledError()])
async def test_a_page_that_failed_or_was_cancelled_is_read_anew_and_the_list_is_whole(
    tmp_path: Path, failure: BaseException
) -> None:
    store = Counting(tmp_path / "amplifier.db", 5.0)
    names = [f"s{number}" for number in range(2 * STEP + 20)]
    for name in names:
        await store.create(SessionRecord(name, name=name, project="/p", turn_count=1))
        await store.append(name, [{"role": "user", "content": "hello"}], at=0)
    lists, cursor, found, failed = Lists(store), None, list[str](), False
    while True:
        if len(found) == STEP - PAGE:  # this page reads the store further
            store.failure = failure
            with pytest.raises(type(failure)):
                await lists.take_page("/p", cursor)
            failed = True
        page = await lists.take_page("/p", cursor)
        found += [each["sessionId"] for each in page["sessions"]]
        if (cursor := page.get("nextCursor")) is None:
            break
    assert (found, failed) == (names[::-1], True)
    await store.close()
