"""Pages and counts without a look at other rows, damaged rows in them, and news of commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Delivery, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite, views, watching
from amplifier_storage_sqlite.ordering import MOST_RECENT, newest
from amplifier_storage_sqlite.rows import DELIVERIES, SESSIONS
from amplifier_storage_sqlite.sessions import create

if TYPE_CHECKING:
    from amplifier_storage_sqlite.store import SqliteStore

    from .conftest import Start, Steps, Unpack

AT = datetime(2026, 1, 2, tzinfo=UTC)
PATIENCE = 20.0


def _fill(store: SqliteStore, numbers: range) -> None:
    """Store deliveries and sessions of two projects; every hundredth is dead, or failed."""

    def write(db: sqlite3.Connection) -> None:
        for number in numbers:
            project, at, is_bad = f"/p{number % 2}", AT + timedelta(seconds=number), number % 100 == 7
            event = TriggerEvent(TriggerType.CUSTOM, "x")
            times = {"available_at": at, "created": at, "updated": at}
            delivery = Delivery(f"d{number}", project, "q", "t", event, "dead" if is_bad else "done", **times)
            row = DELIVERIES.row(delivery)
            marks = ", ".join(f":{name}" for name in row)
            db.execute(f"INSERT INTO deliveries ({', '.join(row)}) VALUES ({marks})", row)
            status = "failed" if is_bad else "completed"
            create(db, SESSIONS.row(SessionRecord(f"s{number}", name="n", project=project, status=status, updated=at)))

    store._writer.submit(write).result()


async def test_a_page_costs_the_same_in_a_list_of_any_length(store: SqliteStore, steps: Steps) -> None:
    pages = {
        "deliveries": lambda db: views.delivery_page(db, None, None, (), None, 10),
        "last deliveries": lambda db: views.delivery_page(db, "/p1", None, ("dead",), "d30", 10),
        "sessions": lambda db: views.session_page(db, None, (), "", None, 10),
        "last sessions": lambda db: views.session_page(db, "/p1", (), "", "s30", 10),
    }
    _fill(store, range(200))
    before = {name: steps(page) for name, page in pages.items()}
    _fill(store, range(200, 200 + 60 * MOST_RECENT))  # as many as before have not moved in the index yet
    after = {name: steps(page) for name, page in pages.items()}
    assert all(after[name] < 1.5 * before[name] for name in pages), (before, after)


async def test_a_first_page_is_by_time_whatever_the_order_of_the_rows(store: SqliteStore) -> None:
    """A clock that was set back, or a transfer, stores a later delivery before an earlier one."""
    for numbers in (range(300, 310), range(100), range(200, 205)):
        _fill(store, numbers)
    newest = [f"d{number}" for number in [*range(309, 299, -1), *range(204, 199, -1), *range(99, -1, -1)]]
    for limit in (1, 3, 7, 12, 40, 200):
        assert [each.delivery_id for each in await store.delivery_page(limit=limit)] == newest[:limit]


async def test_a_damaged_delivery_is_listed_with_its_damage(store: SqliteStore) -> None:
    _fill(store, range(3))
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE deliveries SET event = '{' WHERE delivery_id = 'd1'")
    found = await store.delivery_page(states=("done",), limit=2)
    assert [each.delivery_id for each in found] == ["d2", "d1"]
    assert (found[1].queue, found[1].state) == ("q", "done")
    assert "the store is damaged" in str(found[1].reason)


async def test_a_damaged_record_is_listed_with_its_damage(store: SqliteStore) -> None:
    _fill(store, range(3))
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE sessions SET turn_count = 9 WHERE session_id = 's1'")
    found = await store.session_page(text="n")
    assert [each.session_id for each in found] == ["s2", "s1", "s0"]
    assert "the store is damaged" in str(found[1].error)


async def test_a_page_names_the_plan_of_its_index(store: SqliteStore) -> None:
    """A filter by status or text looks at the index alone, and so at no configuration."""
    with closing(sqlite3.connect(store.path)) as db:
        for where in ("project = '/p' AND status = 'failed'", "status = 'failed' AND instr(lower(name), 'x')"):
            plan = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {newest('', where)}", {"limit": 9})]
            assert "COVERING INDEX sessions_by_" in plan[2], plan
            assert plan[0] == "MERGE (UNION ALL)"
            assert list(dict.fromkeys(each for each in plan if "recent" in each or "PRIMARY KEY" in each)) == [
                "SEARCH sessions USING COVERING INDEX sessions_recent (recent>?)",
                "SEARCH sessions USING INTEGER PRIMARY KEY (rowid=?)",
            ]


@pytest.fixture
def released(unpack: Unpack) -> Path:
    """A store of schema 13: a session with a fork, and deliveries in four states."""
    return unpack(13)


async def test_a_store_of_before_shows_its_pages(released: Path) -> None:
    with closing(sqlite3.connect(released)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (13,)
    store = open_sqlite({"path": released})
    shown = [(each.event.event_id, each.state) for each in await store.delivery_page()]
    states = ("pending", "pending", "pending", "claimed", "dead", "done")
    assert shown == [(f"event-{number}", state) for number, state in zip(range(5, -1, -1), states, strict=True)]
    assert [each.session_id for each in await store.session_page(project="/projects/app")] == ["fork", "parent"]
    assert [each.session_id for each in await store.session_page(text="grösse")] == ["parent"]
    [first, *_] = await store.delivery_rates(since=datetime(2026, 1, 1, tzinfo=UTC), step=86_400)
    assert (first.at, first.state, first.count) == (datetime(2026, 1, 2, tzinfo=UTC), "claimed", 1)
    await store.close()


def _watches() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("watch of")]


async def test_a_watch_has_a_thread_while_somebody_listens(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.emit(SessionEvent("a", {}))
    assert _watches() == []
    ends = [store.watch_commits(lambda: None) for _ in range(2)]
    assert _watches() == ["watch of store.db"]
    for end in ends:
        end()
    again = store.watch_commits(lambda: None)
    await store.close()
    again()
    assert _watches() == []
    with pytest.raises(StoreUnavailable):
        store.watch_commits(lambda: None)


async def test_the_end_of_a_store_waits_for_the_watches_that_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close, going, closing_ones = watching.Look.close, threading.Event(), list[watching.Look]()

    def close_late(look: watching.Look) -> None:
        closing_ones.append(look)
        if len(closing_ones) == 1:
            going.wait(5)
        close(look)

    monkeypatch.setattr(watching.Look, "close", close_late)
    store = open_sqlite({"path": path})
    store.watch_commits(lambda: None)()
    while not closing_ones:
        await asyncio.sleep(0.001)
    store.watch_commits(lambda: None)
    assert _watches() == ["watch of store.db"] * 2
    threading.Timer(0.1, going.set).start()
    await store.close()
    assert _watches() == []


async def test_a_commit_of_another_process_is_told(store: SqliteStore, start: Start) -> None:
    heard = threading.Semaphore(0)
    end = store.watch_commits(heard.release)
    other = start(
        """
async def main():
    store = open_sqlite({"path": sys.argv[1]})
    for line in sys.stdin:
        await store.create(SessionRecord(line.strip()))
        say("stored")
asyncio.run(main())
""",
        store.path,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    for name in ("a", "b", "c"):
        other.stdin.write(f"{name}\n")
        other.stdin.flush()
        assert other.stdout.readline() == "stored\n"
        assert heard.acquire(timeout=PATIENCE)
        while heard.acquire(blocking=False):
            pass
    end()


async def test_a_listener_that_fails_harms_no_other_one(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    heard = threading.Event()
    ends = [store.watch_commits(lambda: 1 // 0), store.watch_commits(heard.set)]  # type: ignore[arg-type, return-value]
    await store.emit(SessionEvent("a", {}))
    assert heard.wait(PATIENCE)
    for end in ends:
        end()
    assert "a listener of the store failed" in caplog.text
