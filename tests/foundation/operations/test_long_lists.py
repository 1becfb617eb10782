"""What commands read of a store with very many sessions: a page at a time, or the wanted ones alone."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.operations import session_search
from amplifier_foundation.operations.runs import list_runs
from amplifier_foundation.operations.session_search import Wanted, search_sessions
from amplifier_foundation.operations.session_trees import read_forest, read_subtree, read_waking
from amplifier_foundation.operations.sessions import find_last
from amplifier_foundation.operations.spending import sum_stored
from amplifier_foundation.sessions import store_views
from amplifier_foundation.sessions.ledger import LEDGER, Ledger
from amplifier_foundation.sessions.store_views import read_in_steps
from amplifier_foundation.sessions.usage import Usage
from amplifier_storage_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

STEP = 4


class Stingy(SqliteStore):
    """A store that gives no list of all sessions, and notes which sessions it gives."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 5.0)
        self.given = Counter[str]()
        self.most = 0
        self.asked = 0
        """How often it was asked for deliveries."""

    def _note(self, records: Sequence[SessionRecord]) -> Sequence[SessionRecord]:
        self.given.update(each.session_id for each in records)
        self.most = max(self.most, len(records))
        return records

    async def sessions(self, *, limit: int | None = None, **wanted: Any) -> Any:
        assert limit is not None, "all sessions at once"
        return self._note(await super().sessions(limit=limit, **wanted))

    async def session_page(self, **wanted: Any) -> Any:
        return self._note(await super().session_page(**wanted))

    async def deliveries(self, **wanted: Any) -> Any:
        self.asked += 1
        return await super().deliveries(**wanted)

    async def sessions_below(self, session_id: str, *, limit: int | None = None) -> Any:
        return self._note(await super().sessions_below(session_id, limit=limit))

    async def sessions_with(self, member: str, **wanted: Any) -> Any:
        return self._note(await super().sessions_with(member, **wanted))


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stingy]:
    monkeypatch.setattr(store_views, "STEP", STEP)
    store = Stingy(tmp_path / "amplifier.db")
    yield store
    await store.close()


async def _ids(store: Stingy) -> list[str]:
    return [each.session_id async for page in read_in_steps(store) for each in page]


async def test_sessions_that_change_or_go_while_they_are_read_come_once_each(store: Stingy) -> None:
    names = [f"s{number}" for number in range(4 * STEP)]
    for name in names:
        await store.create(SessionRecord(name))
    found, is_changed = list[str](), False
    async for page in read_in_steps(store):
        found += [each.session_id for each in page]
        if not is_changed:
            is_changed = True
            for name in ("s0", "s5"):  # they come last, and now they are before this page
                await store.update(name, name="changed")
            await store.create(SessionRecord("new"))
            await store.delete(found[-1])
    assert sorted(found) == sorted([*names, "new"])
    assert store.most == STEP
    assert len(await _ids(store)) == len(names)
    assert await _ids(store) == [each.session_id for each in await store.sessions(limit=100)]


async def test_costs_are_summed_page_by_page(store: Stingy) -> None:
    ledger = Ledger()
    ledger.add_usage("2026-11-22", "m", Usage(input_tokens=2, cost_usd=Decimal("0.5"), requests=1))
    for number in range(3 * STEP):
        project = "/p" if number % 2 else "/q"
        await store.create(SessionRecord(f"s{number}", project=project, metadata={LEDGER: ledger.to_dict()}))
    [(model, usage)] = await sum_stored(store, None, ["model"])
    assert (model, usage.requests, usage.cost_usd) == (("m",), 3 * STEP, Decimal("6.0"))
    assert store.most == STEP
    rows = await sum_stored(store, {"/p"}, ["day", "session"])
    assert [values for values, _ in rows] == sorted(("2026-11-22", f"s{n}") for n in range(1, 3 * STEP, 2))


async def test_runs_of_workflows_are_found_without_a_look_at_other_sessions(store: Stingy) -> None:
    for number in range(3 * STEP):
        await store.create(SessionRecord(f"s{number}", project="/p", metadata={"about": "flow"}))
    await store.create(SessionRecord("first", project="/p", metadata={"flow": {"name": "release"}}))
    await store.create(SessionRecord("second", project="/q", metadata={"flow": {"name": "release"}}))
    assert [each.session_id for each in await list_runs(store)] == ["second", "first"]
    assert [each.session_id for each in await list_runs(store, {"/p"})] == ["first"]
    assert [each.session_id for each in await list_runs(store, {"/p", "/q"}, limit=1)] == ["second"]
    assert set(store.given) == {"first", "second"}


async def test_the_last_session_of_a_kind_is_found_page_by_page(store: Stingy) -> None:
    for number in range(30):
        await store.create(SessionRecord(f"s{number}", name="wanted" if number < 3 else ""))
    assert (await find_last(store, lambda each: each.name == "wanted")).session_id == "s2"
    assert "s1" not in store.given, "it stops at the first one"
    assert store.most == 20
    with pytest.raises(LookupError):
        await find_last(store, lambda each: each.name == "nothing")


async def test_a_subtree_reads_what_it_holds(store: Stingy) -> None:
    for number in range(3 * STEP):
        await store.create(SessionRecord(f"s{number}", parent_id="root"))
    root = await store.create(SessionRecord("root"))
    top = await store.create(SessionRecord("top", parent_id="s1"))
    await store.create(SessionRecord("fork", parent_id="s2", fork_of="top", fork_at=0))
    await store.create(SessionRecord("low", parent_id="fork"))
    found = await read_subtree(store, top)
    assert [each.session_id for each in found.records] == ["top", "fork", "low"]
    assert not found.has_more
    assert set(store.given) == {"fork", "low"}
    few = await read_subtree(store, root, 2)
    assert (len(few.records), few.records[0], few.has_more) == (2, root, True)
    exact = await read_subtree(store, top, 3)
    assert (len(exact.records), exact.has_more) == (3, False)


async def test_the_last_changed_sessions_come_with_those_above_them(store: Stingy) -> None:
    await store.create(SessionRecord("root", project="/p"))
    await store.create(SessionRecord("middle", project="/p", parent_id="root"))
    for number in range(3 * STEP):
        await store.create(SessionRecord(f"s{number}", project="/p", parent_id="gone"))
    await store.create(SessionRecord("leaf", project="/p", fork_of="middle", fork_at=0, parent_id="elsewhere"))
    await store.create(SessionRecord("far", project="/q"))
    found = await read_forest(store, "/p", 2)
    assert [each.session_id for each in found.records] == ["leaf", "s11", "middle", "root"]
    assert found.has_more
    whole = await read_forest(store, "/p", 15)
    assert (len(whole.records), whole.has_more) == (15, False)


async def test_the_events_of_a_tree_are_those_of_its_sessions(store: Stingy) -> None:
    for name in ("one", "two"):
        event = TriggerEvent(TriggerType.MANUAL, "by hand")
        await store.enqueue("/p", "queue", "t", event)
        claimed = await store.claim("/p", "queue", owner="me", lease=60, session_id=name)
        assert claimed is not None
        await store.commit(claimed)
    records = [SessionRecord("one", event_id="e"), SessionRecord("other")]
    assert [each.session_id for each in await read_waking(store, records, "/p")] == ["one"]
    store.asked = 0
    many = [*records, *(SessionRecord(f"s{number}", event_id="e") for number in range(500))]
    found = await read_waking(store, many, "/p")
    assert "one" in {each.session_id for each in found}
    assert store.asked == 1


async def test_a_search_that_reads_messages_holds_a_page_of_sessions(
    store: Stingy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4 * STEP):
        await store.create(SessionRecord(f"s{number}", name="late" if number % 2 else "", project="/p"))
        await store.append(f"s{number}", [{"role": "user", "content": "?!?" if number == 15 else "..."}], at=0)
    monkeypatch.setattr(session_search, "SEARCHED", 5)
    found = await search_sessions(store, Wanted({"/p"}, name="late"), 50, "!!")
    assert (found.records, found.read, found.unread) == ([], 5, 2 * STEP - 5)
    assert store.most <= 2 * STEP, "those with the name, and a page of all"
    found = await search_sessions(store, Wanted({"/p", "/q"}), 50, "!?")
    assert [each.session_id for each in found.records] == ["s15"]
    assert store.most <= 2 * STEP
