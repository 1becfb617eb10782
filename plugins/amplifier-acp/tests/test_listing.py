"""Lists of sessions read no more of the store than they show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amplifier_acp.listing import PAGE, Lists
from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.store_views import STEP
from amplifier_storage_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


class Counting(SqliteStore):
    """A store that counts the sessions that it gives."""

    given = 0

    async def sessions(self, **wanted: Any) -> Any:
        found = await super().sessions(**wanted)
        self.given += len(found)
        return found

    async def session_page(self, **wanted: Any) -> Any:
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
