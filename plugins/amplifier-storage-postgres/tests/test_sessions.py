"""Test histories: their values, their damage, and what reading them costs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import SessionConflict, StoreDamaged
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import administer_postgres, open_postgres, sessions

if TYPE_CHECKING:
    from amplifier_core.transcript import Message
    from amplifier_storage_postgres.connections import Pool
    from amplifier_storage_postgres.store import PostgresStore
    from tests.postgres import Postgres

ODD = "\0 \x1a001a \udce9 🙂 %s {} @. \\ ' \""


def _damage(dsn: str, statement: str) -> None:
    """Change rows as a broken disk would: without the functions of the store."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"SET session_replication_role = replica; {statement}".encode())


async def _history(store: PostgresStore, session_id: str, count: int) -> list[Message]:
    messages: list[Message] = [{"content": f"m{number}"} for number in range(count)]
    await store.create(SessionRecord(session_id))
    await store.append(session_id, messages, at=0)
    return messages


async def test_sessions_are_found_in_a_database_that_is_not_utf_8(postgres: Postgres) -> None:
    name = "latin"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    store = open_postgres({"dsn": postgres.dsn(name)})
    try:
        await store.create(SessionRecord("s", name="Hello"))
        assert [each.session_id for each in await store.session_page(text="hello")] == ["s"]
    finally:
        await store.close()
        postgres.drop(name)


async def test_any_text_is_kept_everywhere(store: PostgresStore) -> None:
    record = SessionRecord("s", name=ODD, bundle=ODD, project=ODD, error=ODD, config={ODD: [ODD]}, metadata={ODD: ODD})
    assert await store.create(record) == record
    assert await store.get("s") == record
    assert await store.sessions(project=ODD) == [record]
    await store.append("s", [{ODD: ODD}], at=0)
    assert await store.read("s") == [{ODD: ODD}]
    event = TriggerEvent(
        TriggerType.CUSTOM, ODD, data={ODD: ODD}, dedupe_key=ODD, event_id=ODD, cause=ODD, state={ODD: ODD}
    )
    enqueued = await store.enqueue(ODD, ODD, ODD, event, admission=Admission(ODD, settle_key=ODD))
    assert enqueued is not None
    assert enqueued.event == replace(event, state=None)
    wanted: dict[str, Any]
    for wanted in ({"event_id": ODD}, {"cause": ODD}, {"project": ODD}, {"queue": ODD}):
        assert await store.deliveries(**wanted) == [enqueued]
    claimed = await store.claim(ODD, ODD, owner=ODD, lease=60, session_id="s")
    assert claimed is not None
    assert (claimed.event, claimed.key) == (enqueued.event, ODD)
    assert await store.trigger_state(ODD, ODD) == {ODD: ODD}
    sent = SessionEvent(ODD, {ODD: ODD}, event_id=ODD, cause=ODD, project=ODD)
    [logged] = await store.commit(claimed, emits=[sent], documents=[DocumentChange(ODD, ODD, ODD, {ODD: ODD})])
    assert await store.events() == [logged] == [replace(sent, sequence=logged.sequence)]
    found = await store.document(ODD, ODD, ODD)
    assert found is not None
    assert (found.project, found.collection, found.key, found.data) == (ODD, ODD, ODD, {ODD: ODD})
    assert await store.documents(ODD, ODD, where={"%s": [ODD]}) == []


async def test_long_keys_are_kept_and_found(store: PostgresStore) -> None:
    """An index of PostgreSQL takes 2,700 bytes."""
    long = json.dumps([number * 7919 % 10007 for number in range(5000)])
    event = TriggerEvent(TriggerType.CUSTOM, "test", dedupe_key=long, event_id=long, cause=long, state={long: 1})
    enqueued = await store.enqueue("/p", "queue", "t", event, admission=Admission(long, settle_key=long))
    assert await store.enqueue("/p", "queue", "t", event) is None
    assert await store.enqueue("/p", "queue", "t", replace(event, dedupe_key=long + "x")) is not None
    assert [each.key for each in await store.deliveries(event_id=long)] == [None, long]
    assert await store.trigger_state("/p", "t") == {long: 1}
    await store.emit(SessionEvent("a", {}, long, event_id=long))
    assert len(await store.events(source_session_id=long)) == 1
    assert enqueued is not None


async def test_a_damaged_message_is_found_and_cut_off(store: PostgresStore, dsn: str) -> None:
    messages = await _history(store, "s", 5)
    await store.create(SessionRecord("fork", fork_of="s", fork_at=2))
    _damage(dsn, "UPDATE amplifier.messages SET body = '{}' WHERE position = 3")
    with pytest.raises(StoreDamaged, match="message m4 is not what was written; see: amplifier session repair s"):
        await store.read("s")
    assert await store.read("s", 0, 3) == messages[:3]
    assert [fault.where for fault in administer_postgres({"dsn": dsn}).check()] != []
    found = await store.examine("s")
    assert [(each.kind, each.position) for each in found] == [("bad_message", 3)]
    assert await store.repair("s") == found
    assert await store.examine("s") == []
    assert await store.read("s") == messages[:3]
    assert await store.append("s", [{"content": "on"}], at=3) == 4
    assert await store.read("fork") == messages[:2]
    await store.delete("s")
    await store.delete("fork")
    for table in ("messages", "histories", "cuts"):
        assert await store._runner.rows(f"SELECT count(*) FROM @.{table}") == [(0,)]


async def test_a_missing_message_is_found(store: PostgresStore, dsn: str) -> None:
    await _history(store, "s", 3)
    _damage(dsn, "DELETE FROM amplifier.messages WHERE position >= 1")
    with pytest.raises(StoreDamaged, match="message m2 is missing"):
        await store.read("s")
    assert [each.position for each in await store.examine("s")] == [1, 2]
    [fault] = administer_postgres({"dsn": dsn}).check()
    assert (fault.where, fault.message) == ("session s", "2 of its messages are missing")


async def test_a_damaged_record_hides_no_other(store: PostgresStore, dsn: str) -> None:
    await _history(store, "bad", 1)
    await _history(store, "good", 1)
    _damage(dsn, "UPDATE amplifier.sessions SET name = 'x' WHERE session_id = 'bad'")
    for attempt in (store.get("bad"), store.read("bad"), store.update("bad", name="y"), store.examine("bad")):
        with pytest.raises(StoreDamaged, match="the record of session 'bad' is not what was written"):
            await attempt
    errors = {record.session_id: record.error for record in await store.sessions()}
    assert errors["good"] is None
    assert "the store is damaged" in str(errors["bad"])
    assert [fault.where for fault in administer_postgres({"dsn": dsn}).check()] == ["sessions, bad"]
    await store.delete("bad")
    assert [record.session_id for record in await store.sessions()] == ["good"]


async def test_a_damaged_link_or_document_is_an_error(store: PostgresStore, dsn: str) -> None:
    await _history(store, "s", 2)
    await store.create(SessionRecord("fork", fork_of="s"))
    await store.write_documents([DocumentChange("/p", "things", "a", {"n": 1})])
    _damage(dsn, "UPDATE amplifier.histories SET shared = 1 WHERE source IS NOT NULL")
    _damage(dsn, "UPDATE amplifier.documents SET data = '{}'")
    with pytest.raises(StoreDamaged, match="message m1 is missing"):
        await store.read("fork")
    with pytest.raises(StoreDamaged, match="differs from the written row"):
        await store.document("/p", "things", "a")
    places = [fault.where.split(",")[0] for fault in administer_postgres({"dsn": dsn}).check()]
    assert places[:2] == ["histories", "documents"]


@pytest.mark.parametrize("late", ["event", "delivery"])
async def test_a_text_that_comes_while_its_session_is_deleted_goes_as_well(
    store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Also beside a damaged row, which stays as it is."""
    await _history(store, "s", 1)
    told = SessionEvent("session:completed", {"output": "secret"}, "s")
    await store.emit(told)
    await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "x", data={"text": "secret"}))
    claimed = await store.claim("/p", "queue", owner="o", lease=60, session_id="s")
    assert claimed is not None
    _damage(dsn, "UPDATE amplifier.events SET data = '{'")
    reads = []

    async def write_late() -> None:
        other = open_postgres({"dsn": dsn})
        await (other.emit(told) if late == "event" else other.commit(claimed))
        await other.close()

    def read_then_write(pool: Pool, session_id: str) -> dict[str, Any]:
        reads.append(emptied(pool, session_id))
        if len(reads) == 1:
            asyncio.run(write_late())
        return reads[-1]

    emptied = sessions.emptied
    monkeypatch.setattr(sessions, "emptied", read_then_write)
    await store.delete("s")
    rows = await store._runner.rows(
        "SELECT data FROM @.events UNION ALL SELECT event FROM @.deliveries WHERE state = 'done'"
    )
    assert ("{",) in rows
    assert len(rows) == 2
    assert "secret" not in str(rows)
    assert len(reads) == 2


async def test_a_program_of_an_earlier_version_still_deletes(store: PostgresStore) -> None:
    """It gives no texts, or not all of them, and does not ask again."""
    await _history(store, "s", 1)
    await store.emit(SessionEvent("session:completed", {"output": "told"}, "s"))
    await store._runner.write("delete", {"session_id": "s"})
    assert await store.sessions() == []


async def test_a_repair_that_a_writer_overtakes_is_a_conflict(store: PostgresStore) -> None:
    await _history(store, "s", 2)
    plan = {"session_id": "s", "history": 1, "count": 1, "cut_at": 1, "no_parent": False, "no_source": False}
    with pytest.raises(SessionConflict):
        await store._runner.write("repair", plan)


async def _buffers(store: PostgresStore, query: str, *values: Any) -> int:
    """Return how many pages a query touches: its cost, without a clock."""
    [(plan,)] = store._runner.pool.read(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", values)
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


async def test_the_cost_of_a_turn_does_not_grow_with_the_history(store: PostgresStore) -> None:
    read = "SELECT * FROM @.read_messages(%s, %s, %s)"
    await _history(store, "short", 50)
    await _history(store, "long", 20_000)
    await store.create(SessionRecord("fork", fork_of="long", fork_at=19_990))
    for _ in range(6):  # until the plans of the functions are settled
        costs = [
            await _buffers(store, read, "short", 40, 50),
            await _buffers(store, read, "long", 19_980, 19_990),
            await _buffers(store, read, "fork", 19_980, 19_990),
        ]
    assert max(costs) <= costs[0] + 6  # the pages of one more link
    perform = "SELECT @.perform('slot', %s, %s, %s::jsonb, '{}'::text[])"
    forks, numbers = [], iter(range(1, 100))
    for source, at in (("short", 40), ("long", 40), ("long", 19_000)) * 3:
        number = next(numbers)
        row = {"session_id": f"f{number}", "fork_of": source, "fork_at": at, "created": 0, "updated": 0}
        row |= dict.fromkeys(("name", "bundle", "bundle_source", "bundle_digest", "project"), "")
        row |= {"status": "running", "turn_count": 0, "config": "{}", "metadata": "{}"}
        forks.append(await _buffers(store, perform, number, "create", json.dumps({"row": row})))
    assert max(forks[6:]) <= 1.5 * min(forks[6:])
