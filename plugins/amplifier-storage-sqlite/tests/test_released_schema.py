"""Open a store written by the last released version, and compare every row with the one before.

`schema_5.sql` is the dump of such a file: sessions with forks, a deleted source and a cut, deliveries in every state.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.storage import Admission
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite, schema

if TYPE_CHECKING:
    from .conftest import Unpack

PROJECT = "/projects/app"
WRITTEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def released(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(Path(__file__).with_name("schema_5.sql").read_text(encoding="utf-8"))
    return path


def _rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table, under the present names of their columns."""
    with closing(sqlite3.connect(path)) as db:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%_index%' ORDER BY name"
        tables = [name for (name,) in db.execute(named)]
        found = {}
        for table in tables:
            rows = db.execute(f"SELECT * FROM {table}")
            names = ["queue" if column[0] == "lane" else column[0] for column in rows.description]
            found[table] = [dict(zip(names, row, strict=True)) for row in rows]
        for row in found["deliveries"]:
            row["event"] = json.loads(row["event"])
        if "triggers" in found:
            found["trigger_states"] = _joined_states(found.pop("triggers"), found["trigger_states"])
        else:
            for row in found["trigger_states"]:
                row["state"] = json.loads(row["state"])
        return found


def _joined_states(triggers: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the states of triggers as released stores hold them, each in one row."""
    states: dict[int, dict[str, Any]] = {each["id"]: {} for each in triggers}
    for row in rows:
        states[row["trigger"]][row["key"]] = json.loads(row["value"])
    return [{"project": each["project"], "trigger": each["trigger"], "state": states[each["id"]]} for each in triggers]


async def test_a_released_store_loses_no_row_and_no_value(released: Path) -> None:
    before = _rows(released)
    assert {table: len(rows) for table, rows in before.items()} == {
        "cuts": 1,
        "deliveries": 11,
        "events": 4,
        "histories": 6,
        "messages": 7,
        "sessions": 4,
        "sqlite_sequence": 1,
        "trigger_states": 2,
    }
    await open_sqlite({"path": released}).close()
    after = _rows(released)
    assert [row["event"].pop("state") for row in before["deliveries"] if row["event"]["state"]] == [
        {"cursor": 7},
        *({"tick": number} for number in range(10, 14)),
    ]
    for row in before["deliveries"]:  # the last state stands in trigger_states, once
        row["event"].pop("state", None)
    for table, rows in before.items():
        kept = [{name: row[name] for name in old} for old, row in zip(rows, after[table], strict=True)]
        assert kept == rows, table


async def test_the_sessions_of_a_released_store_are_read_and_continued(released: Path) -> None:
    store = open_sqlite({"path": released})
    said = [{"role": "user", "content": f"message {number}"} for number in range(3)]
    assert await store.read("parent") == said
    assert await store.read("fork") == [*said, {"role": "assistant", "content": "of the fork"}]
    assert await store.read("orphan") == [{"n": 0}, {"n": 1}]
    record = await store.get("parent")
    assert (record.name, record.config, record.created) == ("Größe", {"session": {"n": [1, None, 2.5]}}, WRITTEN)
    assert [each.kind for each in await store.examine("orphan")] == ["missing_parent", "missing_source"]
    assert await store.append("fork", [{"n": 4}], at=4) == 5
    assert [event.event_id for event in await store.events()] == ["logged-0", "logged-1", "logged-2", "logged-9"]
    assert await store.last_sequence() == 4
    await store.close()


async def test_the_queues_of_a_released_store_go_on_where_they_were(released: Path) -> None:
    store = open_sqlite({"path": released})
    states = {each.event.event_id: (each.queue, each.state, each.attempts) for each in await store.deliveries()}
    assert states == {
        **{f"event-{number}": ("watch", "pending", 0) for number in range(1, 6)},
        "event-6": ("watch", "refused", 0),
        "event-7": ("watch", "skipped", 0),
        "event-10": ("claimed", "claimed", 1),
        "event-11": ("done", "done", 1),
        "event-12": ("dead", "dead", 1),
        "event-13": ("retried", "pending", 1),
    }
    again = TriggerEvent(TriggerType.FILE_CHANGE, "event-1", dedupe_key="known")
    assert await store.enqueue(PROJECT, "watch", "trigger-file-watcher#0", again) is None
    assert await store.trigger_state(PROJECT, "trigger-file-watcher#0") == {"cursor": 7}
    settled = TriggerEvent(TriggerType.FILE_CHANGE, "event-8", event_id="event-8")
    admission = Admission(settle_key="f", settle=60, settle_within=90)
    last = await store.enqueue(PROJECT, "watch", "t", settled, admission=admission, now=WRITTEN + timedelta(seconds=59))
    assert last is not None
    assert last.available_at == WRITTEN + timedelta(seconds=90)
    claimed = []
    while delivery := await store.claim(PROJECT, "watch", owner="me", lease=60, session_id="s", now=LATER):
        claimed.append(delivery.event.event_id)
        await store.commit(delivery)
    assert claimed == ["event-4", "event-1", "event-2", "event-3", "event-8"]
    for queue in ("claimed", "retried"):
        assert await store.claim(PROJECT, queue, owner="me", lease=60, session_id="s", now=LATER)
    await store.close()


async def _open_beside_a_new_one(path: Path) -> list[dict[str, str]]:
    """Bring a store to this version, make a new one, and return the definitions in both, by their names."""
    new, shapes = path.with_name("new.db"), []
    for each in (path, new):
        await open_sqlite({"path": each}).close()
        with closing(sqlite3.connect(each)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
            shapes.append(dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")))
    return shapes


@pytest.mark.parametrize("version", [12, 13, 15, 16, 17])
async def test_a_migrated_store_has_the_tables_and_indexes_of_a_new_one(unpack: Unpack, version: int) -> None:
    migrated, new = await _open_beside_a_new_one(unpack(version))
    assert migrated == new


async def test_a_store_of_the_dump_has_the_tables_and_indexes_of_a_new_one(released: Path) -> None:
    migrated, new = await _open_beside_a_new_one(released)
    for shape in (migrated, new):  # a dump has its own spaces
        shape |= {name: " ".join(sql.split()) for name, sql in shape.items()}
    assert migrated == new
