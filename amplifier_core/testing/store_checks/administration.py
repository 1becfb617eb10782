"""Check the administration of an `Inbox`: finding deliveries, counting, delivering again, dropping."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...errors import DeliveryConflict, DeliveryNotFound, StaleEpoch
from ...events import SessionEvent
from ...storage import Admission, DeliveryCounts, SessionRecord
from ...storage_records import DELETED
from .deliveries import LATER, claim_from, enqueue_to, event_of, nothing_due, reload
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from ...storage import Delivery, DurableStore

QUEUED = Admission("key")


async def _dead(store: DurableStore, **fields: Any) -> Delivery:
    await enqueue_to(store, **fields)
    claimed = await claim_from(store, as_id="first")
    await store.dead_letter(claimed, reason="gave up")
    return claimed


async def check_45_deliveries_are_found_by_what_they_belong_to(store: DurableStore) -> None:
    """The event, its cause, and the session."""
    for queue, event_id, cause in (("a", "e1", "c1"), ("b", "e1", None), ("a", "e2", "c1")):
        await enqueue_to(store, queue=queue, event_id=event_id, cause=cause)
    await claim_from(store, queue="b", as_id="s1")
    cases: tuple[tuple[dict[str, str], list[tuple[str, str]]], ...] = (
        ({"event_id": "e1"}, [("b", "e1"), ("a", "e1")]),
        ({"cause": "c1"}, [("a", "e2"), ("a", "e1")]),
        ({"session_id": "s1"}, [("b", "e1")]),
        ({"event_id": "e1", "cause": "c1"}, [("a", "e1")]),
        ({"event_id": "e1", "queue": "b", "state": "claimed"}, [("b", "e1")]),
        ({"cause": "e1"}, []),
    )
    for wanted, expected in cases:
        found = [(each.queue, each.event.event_id) for each in await store.deliveries(**wanted)]  # type: ignore[arg-type]
        require(found == expected, f"deliveries by {wanted}, newest first: {found}")


async def check_46_delivery_counts_say_how_the_deliveries_fare(store: DurableStore) -> None:
    """Count by trigger and state, with the newest arrival and the oldest unfinished delivery."""
    require(await store.delivery_counts() == [], "there must be no delivery_counts before the first delivery")
    moments = [LATER + timedelta(minutes=number) for number in range(6)]
    for project, queue, trigger, moment in (
        ("/p", "queue", "t1", moments[0]),
        ("/p", "queue", "t1", moments[1]),
        ("/p", "queue", "t1", moments[2]),
        ("/p", "queue", "t2", moments[3]),
        ("/p", "a", "t1", moments[4]),
        ("/q", "a", "t1", moments[5]),
    ):
        refused = "too deep" if project == "/q" else None
        await store.enqueue(project, queue, trigger, event_of(), refused=refused, now=moment)
    await store.commit(await claim_from(store, moments[5]))
    await claim_from(store, moments[5])
    await store.dead_letter(await claim_from(store, moments[5], queue="a"), reason="gave up")
    expected = [
        DeliveryCounts("/p", "a", "t1", {"dead": 1}, moments[4], None),
        DeliveryCounts("/p", "queue", "t1", {"done": 1, "claimed": 1, "pending": 1}, moments[2], moments[1]),
        DeliveryCounts("/p", "queue", "t2", {"pending": 1}, moments[3], moments[3]),
        DeliveryCounts("/q", "a", "t1", {"refused": 1}, moments[5], None),
    ]
    require(
        await store.delivery_counts() == expected,
        f"delivery_counts must be {expected}, not {await store.delivery_counts()}",
    )
    require(await store.delivery_counts(project="/p", queue="queue") == expected[1:3], "delivery_counts of one queue")
    require(
        await store.delivery_counts(queue="a") == [expected[0], expected[3]],
        "delivery_counts of the queues of one name",
    )


async def check_47_what_was_set_aside_is_delivered_again(store: DurableStore) -> None:
    """As if it were new, but by its session; a worker from before stays out."""
    before = await _dead(store)
    again = await store.redeliver(before.delivery_id, now=LATER)
    got = (again.state, again.attempts, again.reason, again.available_at, again.session_id)
    require(got == ("pending", 0, None, LATER, "first"), f"what is delivered again must be as new: {got}")
    require(await reload(store, before) == again, "redeliver must return the delivery as it is stored")
    claimed = await claim_from(store, as_id="second")
    require((claimed.session_id, claimed.attempts) == ("first", 1), "what is delivered again must keep its session")
    await refuses(store.commit(before), StaleEpoch, "commit of a claim from before the delivery was dead")
    await refuses(store.redeliver(before.delivery_id), DeliveryConflict, "redeliver of what is claimed")
    await store.commit(claimed)
    await refuses(store.redeliver(before.delivery_id), DeliveryConflict, "redeliver of what is done")
    await refuses(store.redeliver("nobody"), DeliveryNotFound, "redeliver of what is unknown")
    for refused, admission in (("too deep", None), (None, Admission("key", "skip"))):
        await enqueue_to(store, admission=QUEUED)
        aside = await store.enqueue("/p", "queue", "trigger", event_of(), refused=refused, admission=admission)
        require(aside is not None, "an event that is set aside must be stored")
        if aside is not None:
            await store.redeliver(aside.delivery_id)
            require((await reload(store, aside)).state == "pending", f"redeliver of what was {aside.state}")
            await refuses(store.redeliver(aside.delivery_id), DeliveryConflict, "redeliver of what is pending")


async def check_48_what_is_delivered_again_has_its_old_place(store: DurableStore) -> None:
    """Among those of its key: before the later ones, but after a claimed one."""
    first = await _dead(store, admission=QUEUED)
    second, third = [await enqueue_to(store, admission=QUEUED) for _ in range(2)]
    held = await claim_from(store)
    require(held.delivery_id == second.delivery_id, "when the first of a key is dead the second must be due")
    await store.redeliver(first.delivery_id, now=LATER)
    await nothing_due(store, "a later one of the key is claimed")
    later = LATER + timedelta(seconds=61)
    again = await claim_from(store, later)
    require(again.delivery_id == first.delivery_id, "when that claim's lease ran out, the earliest must be due")
    await nothing_due(store, "the earliest of the key is claimed", now=later)
    await store.commit(again)
    require((await claim_from(store, later)).delivery_id == second.delivery_id, "the second must come after the first")
    await refuses(store.commit(held), StaleEpoch, "commit of a claim that was made again")
    skipped = await enqueue_to(store, admission=Admission("key", "skip"))
    await store.redeliver(skipped.delivery_id, now=LATER)
    await store.drop(third.delivery_id, reason="not wanted")
    await nothing_due(store, "what was skipped, and is delivered again, comes after the second", now=later)


async def check_49_what_nobody_claimed_can_be_dropped(store: DurableStore) -> None:
    """For good; the next of its key is due then."""
    dead, dropped = await _dead(store), []
    first, second = [await enqueue_to(store, admission=QUEUED) for _ in range(2)]
    for each in (dead, first):
        dropped.append(await store.drop(each.delivery_id, reason="not wanted"))
        got = (dropped[-1].state, dropped[-1].reason)
        require(got == ("skipped", "not wanted"), f"what is dropped must be skipped with the reason: {got}")
        require(await reload(store, each) == dropped[-1], "drop must return the delivery as it is stored")
        await refuses(store.drop(each.delivery_id, reason="r"), DeliveryConflict, "drop of what is skipped")
    claimed = await claim_from(store)
    require(claimed.delivery_id == second.delivery_id, "when one is dropped the next of its key must be due")
    await refuses(store.drop(second.delivery_id, reason="r"), DeliveryConflict, "drop of what is claimed")
    await store.commit(claimed)
    await refuses(store.drop(second.delivery_id, reason="r"), DeliveryConflict, "drop of what is done")
    await refuses(store.drop("nobody", reason="r"), DeliveryNotFound, "drop of what is unknown")


async def check_50_purge_forgets_what_was_skipped(store: DurableStore) -> None:
    """With its dedupe key."""
    await enqueue_to(store, admission=QUEUED)
    await enqueue_to(store, admission=Admission("key", "skip"), dedupe_key="d")
    purged = await store.purge(before=LATER + timedelta(days=1))
    require(purged.deliveries == 1, f"purge must forget what was skipped, and nothing that waits: {purged}")
    await enqueue_to(store, dedupe_key="d")


async def check_51_events_are_found_by_their_ids(store: DurableStore) -> None:
    """By a beginning of the id, and by the emitting session."""
    named = [("abc-2", "s1"), ("abc-1", None), ("abd-1", "s2"), ("ab", "s1")]
    sent = [await store.emit(SessionEvent("done", {}, session, event_id=key)) for key, session in named]
    found = await store.find_events("abc")
    require(found == [sent[1], sent[0]], f"events whose id begins with 'abc', in the order of ids: {found}")
    require((await store.find_events("ab"))[0] == sent[3], "an event whose whole id is given must be found first")
    require(await store.find_events("abc-3") == [], "an id that nothing begins with must find nothing")
    for number in range(30):
        await store.emit(SessionEvent("done", {}, event_id=f"many-{number:02}"))
    require(len(await store.find_events("many")) == 20, "find_events must return 20 at most")
    of_one = await store.events(source_session_id="s1")
    require(of_one == [sent[0], sent[3]], f"the events of one session, oldest first: {of_one}")
    later = await store.events(since=sent[0].sequence or 0, limit=1, source_session_id="s1")
    require(later == [sent[3]], f"the events of one session from a place on: {later}")


async def check_52_deliveries_are_found_by_their_ids(store: DurableStore) -> None:
    """Their own, their event's and their session's."""
    one, two = [await enqueue_to(store, event_id=key) for key in ("event-1", "event-2")]
    claimed = await claim_from(store, as_id="session-1")
    require(await store.find_deliveries("event-") == [await reload(store, two), claimed], "by the beginning of events")
    require(await store.find_deliveries("session-1") == [claimed], "by the session")
    require(await store.find_deliveries(one.delivery_id[:12]) == [claimed], "by the beginning of their own")
    require(await store.find_deliveries("session-2") == [], "an id that nothing begins with must find nothing")
    for number in range(30):
        await enqueue_to(store, event_id=f"many-{number}")
    require(len(await store.find_deliveries("many")) == 20, "find_deliveries must return 20 of a kind at most")


async def check_53_a_store_tells_when_the_next_is_due(store: DurableStore) -> None:
    """Only for deliveries of one queue waiting for nothing but the time."""
    require(await store.next_due("/p", "queue", now=LATER) is None, "nothing is due in an empty queue")
    times = [LATER + timedelta(seconds=number) for number in range(5)]
    await enqueue_to(store, admission=QUEUED, now=LATER)
    await store.nack(await claim_from(store), reason="r", available_at=times[3])
    for number, admission in ((2, QUEUED), (4, None)):
        await enqueue_to(store, admission=admission, now=times[number])
        require(
            await store.next_due("/p", "queue", now=LATER) == times[3], "the later one of a key waits for the first"
        )
    require(await store.next_due("/p", "queue", now=times[3]) == times[4], "what is due already must not be told")
    require(await store.next_due("/p", "other", now=LATER) is None, "it must be its queue's alone")
    require(await store.next_due("/q", "queue", now=LATER) is None, "it must be its project's alone")
    await claim_from(store, times[3])
    require(await store.next_due("/p", "queue", now=LATER) == times[4], "what is claimed must not be told")


async def check_54_sessions_woken_by_events_expire(store: DurableStore) -> None:
    """And nothing of it is needed; other sessions never are."""
    await store.create(SessionRecord("person", status="completed"))
    await store.create(SessionRecord("runs", event_id="e", status="running"))
    for name in ("a", "b"):
        for number in range(3):
            woken = SessionRecord(f"{name}{number}", "person", name=name, event_id="e", status="completed")
            await store.create(woken)
            await store.update(woken.session_id, turn_count=1)
    await enqueue_to(store)
    await store.dead_letter(await claim_from(store, as_id="b0"), reason="gave up")
    expired = await store.expired_sessions(before=LATER)
    require(expired == ["a0", "a1", "a2", "b1", "b2"], f"what an event woke and no delivery needs expires: {expired}")
    expired = await store.expired_sessions(before=LATER, keep=1, limit=2)
    require(expired == ["a0", "a1"], f"the newest of each name must be kept: {expired}")
    early = await store.expired_sessions(before=datetime(2000, 1, 1, tzinfo=UTC))
    require(early == [], f"what is young does not expire: {early}")
    made = {record.session_id for record in await store.sessions(parent_id="person", limit=9)}
    require(made == {"a0", "a1", "a2", "b0", "b1", "b2"}, f"sessions that one session made: {sorted(made)}")


async def check_161_a_deleted_session_takes_its_texts_along(store: DurableStore) -> None:
    """Those of its events and finished deliveries; their lineage and dedupe keys stay."""
    told = {"output": "said \0", "trigger": {"body": "b"}, "outputs": {"a": [1]}, "error": None, "success": True}
    for session_id in ("gone", "stays"):
        await store.create(SessionRecord(session_id))
        woken = await enqueue_to(store, data={"body": "b"}, dedupe_key=session_id, event_id=f"event-{session_id}")
        done = SessionEvent("session:completed", told, session_id, cause=woken.event.event_id)
        await store.commit(await claim_from(store, as_id=session_id), emits=[done])
    await enqueue_to(store, data={"body": "waits"})
    dead = await claim_from(store, as_id="gone")
    await store.dead_letter(dead, reason="gave up")
    before = await store.events()
    await store.delete("gone")
    emptied: dict[str, Any] = {"output": "", "trigger": {}, "outputs": {}, "error": None, "success": True}
    left = await store.events()
    require([dict(each.data) for each in left] == [emptied, told], f"the texts of its events must be empty: {left}")
    kept = [replace(each, data={}) for each in before]
    require([replace(each, data={}) for each in left] == kept, f"the rest of an event must stay: {left}")
    bodies = [each.event.data for each in await store.deliveries()]
    expected = [{"body": "waits"}, {"body": "b"}, DELETED]
    require(bodies == expected, f"a dead letter, and a delivery of another session, must keep its data: {bodies}")
    require(len(await store.deliveries(event_id="event-gone")) == 1, "a finished delivery must be found by its event")
    again = await store.enqueue("/p", "queue", "trigger", event_of(dedupe_key="gone"))
    require(again is None, "the queue must know the key of a finished delivery whose session is deleted")


ADMINISTRATION_CHECKS = collect_checks(globals())
