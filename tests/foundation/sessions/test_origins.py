"""Where sessions come from, by a real store: the first cause, the delivery above, and the fork."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core import SessionRecord, TriggerEvent, TriggerType
from amplifier_foundation.sessions.origins import (
    find_cause,
    origin_of_delivery,
    origin_of_fork,
    origin_of_resumed,
    origin_of_stored,
)

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery, DurableStore

PROJECT = "/project"
FILE = TriggerEvent(TriggerType.FILE_CHANGE, "t", event_id="file-id")


async def deliver(store: DurableStore, queue: str, event: TriggerEvent, session: str) -> Delivery:
    """Have a session take an event."""
    await store.enqueue(PROJECT, queue, f"{queue}/t#1", event)
    claimed = await store.claim(PROJECT, queue, owner="o", lease=60.0, session_id=session)
    assert claimed is not None
    await store.create(SessionRecord(session, parent_id="root", project=PROJECT, event_id=event.event_id))
    return claimed


def heard(source: str | None, **fields: Any) -> TriggerEvent:
    return TriggerEvent(TriggerType.SESSION_EVENT, "s", source_session_id=source, **{"cause": "logged", **fields})


async def test_an_event_from_outside_is_its_own_root(store: DurableStore) -> None:
    await store.create(SessionRecord("root", project=PROJECT))
    claimed = await deliver(store, "b/one", FILE, "one")
    assert await find_cause(store, FILE) == ("file-id", None, None)
    assert await origin_of_delivery(store, claimed) == {
        "root": "file-id",
        "delivery": claimed.delivery_id,
        "attempt": 1,
    }


async def test_a_chain_of_events_leads_to_its_first_one(store: DurableStore) -> None:
    await store.create(SessionRecord("root", project=PROJECT))
    one = await deliver(store, "b/one", FILE, "one")
    await store.create(SessionRecord("helper", parent_id="one", project=PROJECT))
    two = await deliver(store, "b/two", heard("helper", event_id="two-id"), "two")
    assert await find_cause(store, two.event) == ("file-id", one.delivery_id, None)
    assert await find_cause(store, heard("two")) == ("file-id", two.delivery_id, None)
    suspected = TriggerEvent(TriggerType.FILE_CHANGE, "t", cause="two-id")
    assert await find_cause(store, suspected) == ("file-id", two.delivery_id, None)


async def test_a_session_of_a_person_is_the_root_of_what_it_causes(store: DurableStore) -> None:
    await store.create(SessionRecord("person", project=PROJECT))
    await store.create(SessionRecord("helper", parent_id="person", project=PROJECT))
    assert await find_cause(store, heard("helper")) == ("person", None, "person")
    assert await find_cause(store, heard(None)) == ("logged", None, None)
    assert await find_cause(store, heard("deleted")) == ("deleted", None, "deleted")


async def test_an_event_that_causes_itself_ends_the_search(store: DurableStore) -> None:
    await store.create(SessionRecord("root", project=PROJECT))
    claimed = await deliver(store, "b/one", heard("one", event_id="circle"), "one")
    assert await find_cause(store, claimed.event) == ("circle", claimed.delivery_id, None)


async def test_a_resumed_fork_has_the_root_of_its_source_and_the_owner_of_the_last_shared_turn(
    store: DurableStore,
) -> None:
    await store.create(SessionRecord("root", project=PROJECT))
    claimed = await deliver(store, "b/one", FILE, "one")
    await store.append("one", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], at=0)
    first = await store.create(SessionRecord("first", parent_id="one", fork_of="one", fork_at=2, status="idle"))
    second = await store.create(SessionRecord("second", parent_id="first", fork_of="first", fork_at=2, status="idle"))
    origin = await origin_of_stored(store, second)
    assert origin == {
        "root": "file-id",
        "delivery": claimed.delivery_id,
        "fork_of": "first",
        "fork_at": 2,
        "turn_of": "one",
    }
    await store.append("first", [{"role": "user", "content": "c"}], at=2)
    assert (await origin_of_fork(store, {}, "first", 3))["turn_of"] == "first"
    assert (await origin_of_stored(store, first))["turn_of"] == "one"


async def test_a_running_record_was_left_by_a_killed_process(store: DurableStore) -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    record = await store.create(SessionRecord("s", project=PROJECT, created=created))
    origin = await origin_of_resumed(store, record, {"root": "s"})
    assert origin == {"root": "s", "cut": [created.isoformat(), record.updated.isoformat()]}
    await store.update("s", status="failed")
    assert await origin_of_resumed(store, await store.get("s"), {"root": "s"}) == {"root": "s"}
