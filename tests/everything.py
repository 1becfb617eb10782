"""Fill a store with one of everything, and describe what a store does with it: a copy must do the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.documents import DocumentChange
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, Delivery, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WHEN = datetime(2025, 5, 4, 3, 2, 1, 999_999, tzinfo=UTC)
LATER = WHEN + timedelta(days=1)
PROJECT = "/work/p\udcffroject"
"""A folder whose name is not UTF-8."""
ODD = "half \ud83d and \udcff, NUL \0, quote \" ' \\, é \u2028 😀 \uffff"
_PAGE = 500


FAR = SessionEvent("far", {"text": ODD}, None, WHEN, event_id="event-of-berlin")
"""An event of another site."""


async def fill(store: Any, messages: int = 60) -> None:
    """Store one of everything that a store keeps, with histories of `messages` messages in all."""
    await _fill_sessions(store, messages)
    await _fill_queues(store)
    await store.save_trigger_state(PROJECT, "timer", {"": 0, "key": ODD, ODD: {"deep": [1, 2.5, None]}})
    await store.save_trigger_state("/other", "timer", {"key": 1})
    await _fill_documents(store)
    await store.receive(FAR, "berlin")
    for number in range(3):
        await store.emit(SessionEvent(f"step:{number}", {"text": ODD}, "root", WHEN, event_id=f"purged-{number}"))
    await store.purge(before=datetime.now(UTC) - timedelta(days=1), event_bytes=0)


async def _fill_sessions(store: Any, messages: int) -> None:
    await store.create(SessionRecord("root", project=PROJECT, name=ODD, config={"model": ODD, "n": 2.5}, created=WHEN))
    for at in range(0, messages, _PAGE):
        await store.append("root", [_message(n) for n in range(at, min(at + _PAGE, messages))], at=at)
    await store.create(SessionRecord("fork", parent_id="root", fork_of="root", fork_at=messages // 2))
    await store.append("fork", [{"role": "user", "content": ODD}], at=messages // 2)
    await store.create(SessionRecord("fork-of-fork", parent_id="fork", fork_of="fork"))
    await store.append("fork-of-fork", [{"role": "assistant", "content": "deep"}], at=messages // 2 + 1)
    await store.create(SessionRecord("early", parent_id="fork-of-fork", fork_of="fork-of-fork", fork_at=3))
    await store.create(SessionRecord("doomed", fork_of="root", fork_at=5))
    await store.append("doomed", [{"role": "user", "content": "kept by its fork"}], at=5)
    await store.create(SessionRecord("orphan", fork_of="doomed"))
    await store.delete("doomed")
    await store.create(SessionRecord("spawned", parent_id="root"))
    await store.update("fork", status="failed", error=ODD, turn_count=7, metadata={"usage": {"cost": "0.1"}})
    for each in ("root", "fork-of-fork", "early", "orphan", "spawned"):
        await store.update(each, status="completed")


def _message(number: int) -> dict[str, Any]:
    return {"role": ("user", "assistant")[number % 2], "content": f"{number} {ODD}", "metadata": {"n": number}}


async def _fill_queues(store: Any) -> None:
    async def enqueue(queue: str, name: str, **given: Any) -> Delivery | None:
        event = TriggerEvent(TriggerType.MANUAL, ODD, WHEN, {"text": ODD}, dedupe_key=name, event_id=f"event-{name}")
        delivery: Delivery | None = await store.enqueue(PROJECT, queue, "manual", event, now=WHEN, **given)
        return delivery

    async def claim(queue: str) -> Delivery:
        delivery = await store.claim(PROJECT, queue, owner="one@host", lease=60, session_id=f"of-{queue}", now=WHEN)
        assert delivery is not None
        return delivery

    for queue in ("done", "dead", "claimed", "tried"):
        await store.create(SessionRecord(f"of-{queue}", event_id=f"event-{queue}", project=PROJECT, status="completed"))
        await enqueue(queue, queue)
    await store.commit(await claim("done"), emits=[SessionEvent("ended", {"n": 1}, "of-done", cause="event-done")])
    await store.dead_letter(await claim("dead"), reason=ODD)
    await claim("claimed")
    await store.nack(await claim("tried"), reason="later", available_at=LATER)
    await enqueue("refused", "refused", refused="too deep")
    for name in ("first", "second", "third"):
        await enqueue("keyed", name, admission=Admission(key="issue-1"))
    await enqueue("keyed", "other", admission=Admission(key="issue-2", priority=3))
    await store.create(SessionRecord("of-held", status="completed"))
    await enqueue("held", "before", admission=Admission(key="issue-3"))
    await store.dead_letter(await claim("held"), reason="given up")
    await enqueue("held", "after", admission=Admission(key="issue-3"))
    await claim("held")
    await store.redeliver((await store.deliveries(queue="held", state="dead"))[0].delivery_id, now=WHEN)
    await enqueue("settling", "early", admission=Admission(settle_key="a", settle=5, settle_within=60))
    await enqueue("settling", "late", admission=Admission(settle_key="a", settle=5, settle_within=60))
    for key in ("é\udcff" * 90, "long" * 90):
        await enqueue("settling", key, admission=Admission(key=key, settle_key=key, settle=5))


async def _fill_documents(store: Any) -> None:
    def change(key: str, data: dict[str, Any] | None, version: int = 0, searched: tuple[str, ...] = ()) -> None:
        changes.append(DocumentChange(PROJECT, "issues", key, data, version, searched))

    changes: list[DocumentChange] = []
    change("b", {"title": "the second penguin", "tags": ["Pinguin", ODD]}, searched=("title", "tags"))
    change("a", {"title": "a first penguin"}, searched=("title",))
    change("gone", {"title": "penguin gone"}, searched=("title",))
    change(ODD[:200], {"title": ODD})
    changes.append(DocumentChange("/other", "issues", "a", {"title": "elsewhere penguin"}, 0, ("title",)))
    await store.write_documents(changes, emits=[SessionEvent("issue:made", {"key": "a"}, "root")])
    changes.clear()
    change("a", {"title": "the first penguin, changed"}, 1, ("title",))
    change("gone", None, 1)
    await store.write_documents(changes)


async def describe(store: Any) -> dict[str, Any]:
    """Return what a store says of everything, and what it does next; this changes the store.

    A copy has no claims, so the store gives up its own first.
    """
    await store.release(PROJECT)
    told = {name: value async for name, value in _read(store)}
    return {**told, **{name: value async for name, value in _go_on(store)}}


async def _read(store: Any) -> AsyncIterator[tuple[str, Any]]:
    sessions = await store.sessions()
    yield "sessions", sessions
    for each in sessions:
        yield f"messages of {each.session_id}", await store.read(each.session_id)
        yield f"faults of {each.session_id}", await store.examine(each.session_id)
    yield "spawned", await store.spawned("root")
    yield "events", await store.events()
    yield "last sequence", await store.last_sequence()
    yield "counts", await store.delivery_counts()
    for project in (PROJECT, "/other"):
        yield f"state in {project}", await store.trigger_state(project, "timer")
        yield f"documents in {project}", await store.documents(project, "issues")
        for query in ("penguin", "first penguin", "pinguin", "changed", "gone", "half"):
            yield f"search for {query} in {project}", await store.search_documents(project, "issues", query)
    for state in ("done", "dead", "refused", "skipped"):
        yield f"deliveries {state}", [_facts(each) for each in await store.deliveries(state=state)]


async def _go_on(store: Any) -> AsyncIterator[tuple[str, Any]]:
    event = TriggerEvent(TriggerType.MANUAL, "again", WHEN, dedupe_key="done", event_id="again")
    yield "known", await store.enqueue(PROJECT, "done", "manual", event, now=LATER)
    for queue in ("claimed", "tried", "held", "held", "keyed", "keyed", "keyed", "keyed", *["settling"] * 4):
        claimed = await store.claim(PROJECT, queue, owner="two@host", lease=60, session_id="of-dead", now=LATER)
        yield f"claim in {queue} {claimed and claimed.event.event_id}", claimed and _facts(claimed)
        if claimed is not None and claimed.event.event_id != "event-other":
            await store.commit(claimed)
    dead = (await store.deliveries(queue="dead"))[0]
    yield "redelivered", _facts(await store.redeliver(dead.delivery_id, now=LATER))
    yield "received again", await store.receive(FAR, "berlin") is None
    emitted = await store.emit(SessionEvent("next", {}, "root"))
    yield "next sequence", emitted.sequence
    yield "appended", await store.append("early", [{"role": "user", "content": "on"}], at=3)
    forked = await store.create(SessionRecord("new", fork_of="fork-of-fork", created=WHEN, updated=WHEN))
    yield "forked", forked.message_count
    changed = DocumentChange(PROJECT, "issues", "a", {"title": "third"}, 2, ("title",))
    await store.write_documents([changed])
    found = await store.search_documents(PROJECT, "issues", "third penguin")
    yield "found after a change", [(each.document.key, each.document.version) for each in found]


def _facts(delivery: Delivery) -> dict[str, Any]:
    """Return the fields of a delivery that two stores have alike; `updated` is the time of each one's change."""
    names = [name for name in Delivery.__dataclass_fields__ if name != "updated"]
    return {name: getattr(delivery, name) for name in names}
