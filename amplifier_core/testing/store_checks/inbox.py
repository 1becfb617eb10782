"""Check the life of a delivery in an `Inbox`, from the event to its end; the store is a `SessionStore` too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from ...errors import SessionNotFound, StaleEpoch
from ...events import SessionEvent
from ...storage import SessionRecord
from .deliveries import LATER, claim_from, emits, enqueue_to, event_of, newest, nothing_due
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from ...storage import DurableStore


async def check_20_events_are_logged_in_sequence(store: DurableStore) -> None:
    """And returned from any place on."""
    require(await store.last_sequence() == 0, "last_sequence must be 0 before the first event")
    first = SessionEvent("work:done", {"n": [1, "ü"]}, "s1", LATER, "e1", "e0", 3, project="/p")
    sent = [first, *emits("b", "c")]
    logged = [await store.emit(event) for event in sent]
    sequences = [event.sequence or 0 for event in logged]
    require(0 < sequences[0] < sequences[1] < sequences[2], f"sequences must grow: {sequences}")
    require([replace(event, sequence=None) for event in logged] == sent, "emit must return the event it was given")
    require(await store.events() == logged, "events must return what was emitted, oldest first")
    require(await store.events(since=sequences[0], limit=1) == logged[1:2], "events must begin after `since`")
    require(await store.last_sequence() == sequences[2], "last_sequence must be that of the newest event")


async def check_21_an_event_that_was_offered_is_delivered(store: DurableStore) -> None:
    """As it was, to its own queue."""
    fields: dict[str, Any] = {"file_path": "/f", "change_type": "modified", "event_name": "n", "depth": 2}
    event = event_of(timestamp=LATER, data={"a": [1, None]}, dedupe_key="k", cause="c", **fields)
    enqueued = await store.enqueue("/p", "queue", "trigger", replace(event, state={"a": 1}, state_changes={"b": 2}))
    require(enqueued is not None and enqueued.state == "pending", "enqueue must return the pending delivery")
    require(await store.deliveries() == [enqueued], "deliveries must return what was enqueued")
    await nothing_due(store, "the delivery is another project's", project="/q")
    claimed = await claim_from(store, as_id="worker-1")
    require(claimed.event == event, "the event must be returned as enqueued, without state and state_changes")
    got = (claimed.state, claimed.attempts, claimed.epoch, claimed.session_id)
    require(got == ("claimed", 1, 1, "worker-1"), f"the first claim must say attempt 1, epoch 1, its session: {got}")
    await nothing_due(store, "the only delivery is claimed")


async def check_22_one_dedupe_key_is_delivered_once(store: DurableStore) -> None:
    """In its queue, even when the first delivery is done; events without a key all count."""
    await enqueue_to(store, dedupe_key="k")
    require(
        await store.enqueue("/p", "queue", "t", event_of(dedupe_key="k")) is None, "a known dedupe_key must give None"
    )
    await store.commit(await claim_from(store))
    require(await store.enqueue("/p", "queue", "t", event_of(dedupe_key="k")) is None, "a key that is done stays known")
    require(await store.enqueue("/q", "queue", "t", event_of(dedupe_key="k")) is not None, "a key is known per project")
    for queue, key in (("other", "k"), ("queue", None), ("queue", None)):
        await enqueue_to(store, queue=queue, dedupe_key=key)


async def check_23_the_state_of_a_trigger_is_stored_with_its_event(store: DurableStore) -> None:
    """Of a duplicate and of a refused event too; by itself as well."""
    require(await store.trigger_state("/p", "trigger") == {}, "the state must be {} before the first event")
    for number, refused in ((1, None), (2, None), (3, "too deep")):
        await store.enqueue("/p", "queue", "trigger", event_of(dedupe_key="k", state={"at": number}), refused=refused)
        kept = await store.trigger_state("/p", "trigger")
        require(kept == {"at": number}, f"enqueue must store the state of event {number}, not {kept}")
    await enqueue_to(store, state=None)
    require(await store.trigger_state("/p", "trigger") == {"at": 3}, "an event without state must keep the last one")
    await store.save_trigger_state("/p", "trigger", {"at": 4})
    require(await store.trigger_state("/p", "trigger") == {"at": 4}, "save_trigger_state must store the state")
    require(await store.trigger_state("/q", "trigger") == {}, "a state must be its project's alone")


async def check_61_changes_of_a_state_leave_its_other_keys(store: DurableStore) -> None:
    """With an event and by themselves; None deletes a key, and a whole state replaces all."""
    await store.save_trigger_state("/p", "trigger", {"a": 1, "b": {"c": None}, "d": None})
    await enqueue_to(store, dedupe_key="k", state_changes={"a": 2, "d\udce9": [1]})
    await store.enqueue("/p", "queue", "trigger", event_of(dedupe_key="k", state_changes={"a": 3}), refused="too deep")
    kept = await store.trigger_state("/p", "trigger")
    expected = {"a": 3, "b": {"c": None}, "d": None, "d\udce9": [1]}
    require(kept == expected, f"enqueue must change the keys of state_changes alone, not: {kept}")
    await store.save_trigger_state("/p", "trigger", {"d": None, "unknown": None, "e": 0}, merge=True)
    kept = await store.trigger_state("/p", "trigger")
    require(kept == {"a": 3, "b": {"c": None}, "d\udce9": [1], "e": 0}, f"merge must delete the keys of None: {kept}")
    await enqueue_to(store, state={"f": 1}, state_changes={"g": 1})
    kept = await store.trigger_state("/p", "trigger")
    require(kept == {"f": 1, "g": 1}, f"a whole state must replace all keys, and changes come after it: {kept}")
    require(await store.trigger_state("/q", "trigger") == {}, "changes must be of one project")


async def check_24_a_refused_event_is_recorded_and_not_delivered(store: DurableStore) -> None:
    """With its reason."""
    await store.enqueue("/p", "queue", "trigger", event_of(), refused="too deep")
    await nothing_due(store, "the only event was refused")
    refused = await store.deliveries(state="refused")
    require([delivery.reason for delivery in refused] == ["too deep"], "a refused event must be listed with its reason")


async def check_25_the_oldest_delivery_is_claimed_first(store: DurableStore) -> None:
    """And each by one worker, however many ask at once."""
    enqueued = [(await enqueue_to(store, f"e{number}")).delivery_id for number in range(5)]
    first = (await claim_from(store)).delivery_id
    asked = (store.claim("/p", "queue", owner="w", lease=60, session_id="w", now=LATER) for _ in range(8))
    others = [delivery.delivery_id for delivery in await asyncio.gather(*asked) if delivery is not None]
    require(first == enqueued[0], "the delivery that was enqueued first must be claimed first")
    require(sorted(others) == sorted(enqueued[1:]), "each delivery must be claimed by one worker, and none left")


async def check_26_a_lease_that_ran_out_frees_its_delivery(store: DurableStore) -> None:
    """For a claim of the next epoch, by the same session; `renew` puts it off."""
    await enqueue_to(store)
    first = await claim_from(store, as_id="first")
    await store.renew(first, lease=60, now=LATER + timedelta(seconds=50))
    await nothing_due(store, "the lease was renewed", now=LATER + timedelta(seconds=100))
    second = await claim_from(store, LATER + timedelta(seconds=111), as_id="second")
    require((second.epoch, second.attempts) == (2, 2), "a claim after the lease must have the next epoch and attempt")
    require(second.session_id == "first", "a later claim must keep the session of the first")


async def check_27_a_stale_epoch_changes_nothing(store: DurableStore) -> None:
    """By no method."""
    await store.create(SessionRecord("worker", name="before"))
    await enqueue_to(store)
    stale = await claim_from(store)
    await claim_from(store, LATER + timedelta(hours=1))
    before, session = await newest(store), await store.get("worker")
    commit = store.commit(stale, emits=emits("a"), session={"name": "after"})
    await refuses(commit, StaleEpoch, "commit of a stale epoch")
    await refuses(store.renew(stale, lease=60), StaleEpoch, "renew of a stale epoch")
    nack = store.nack(stale, reason="r", available_at=LATER, session={"name": "after"})
    await refuses(nack, StaleEpoch, "nack of a stale epoch")
    dead_letter = store.dead_letter(stale, reason="r", emits=emits("a"), session={"name": "after"})
    await refuses(dead_letter, StaleEpoch, "dead_letter of a stale epoch")
    require(await newest(store) == before, "a stale epoch must not change the delivery")
    require(await store.get("worker") == session, "a stale epoch must not change the session")
    require(await store.events() == [], "a stale epoch must not log events")


async def check_28_a_commit_is_done_whole(store: DurableStore) -> None:
    """Delivery, session and events; a second one is stale."""
    await store.create(SessionRecord("worker"))
    await enqueue_to(store)
    claimed = await claim_from(store)
    logged = await store.commit(claimed, emits=emits("a", "b"), session={"status": "completed", "turn_count": 1})
    require([event.name for event in logged] == ["a", "b"], "commit must return the events it logged")
    require(await store.events() == logged, "commit must log its events, with the sequences it returned")
    record = await store.get("worker")
    require((record.status, record.turn_count) == ("completed", 1), "commit must change the session's record")
    require((await newest(store)).state == "done", "commit must mark the delivery done")
    await nothing_due(store, "the only delivery is done", now=LATER + timedelta(days=1))
    await refuses(store.commit(claimed, emits=emits("c")), StaleEpoch, "a second commit")
    require(await store.events() == logged, "a second commit must log nothing")


async def check_29_a_commit_that_fails_leaves_nothing(store: DurableStore) -> None:
    """Here its session does not exist."""
    await enqueue_to(store)
    claimed = await claim_from(store)
    commit = store.commit(claimed, emits=emits("a"), session={"session_id": "nobody", "name": "x"})
    await refuses(commit, SessionNotFound, "commit with an unknown session")
    require(await store.events() == [], "a failed commit must log nothing")
    require(await newest(store) == claimed, "a failed commit must leave the delivery claimed")
    await store.commit(claimed)


async def check_30_a_failed_delivery_comes_back_or_is_set_aside(store: DurableStore) -> None:
    """`nack` not before its time; `dead_letter` for good; each with its session."""
    await store.create(SessionRecord("worker"))
    await enqueue_to(store)
    due = LATER + timedelta(minutes=5)
    await store.nack(await claim_from(store), reason="the power", available_at=LATER, counted=False)
    require((await newest(store)).attempts == 0, "a claim that is not counted must be no attempt")
    failed = await claim_from(store)
    await store.nack(failed, reason="no network", available_at=due, session={"status": "failed"})
    require((await store.get("worker")).status == "failed", "nack must change the session's record")
    pending = await newest(store)
    got = (pending.state, pending.reason, pending.available_at)
    require(got == ("pending", "no network", due), f"nack must keep the reason and the time: {got}")
    await nothing_due(store, "the next attempt is not due", now=due - timedelta(microseconds=1))
    again = await claim_from(store, due)
    require((again.attempts, again.epoch) == (2, 3), "a retried delivery must be at attempt 2, under a further epoch")
    logged = await store.dead_letter(again, reason="gave up", emits=emits("dead"), session={"status": "completed"})
    require((await store.get("worker")).status == "completed", "dead_letter must change the session's record")
    dead = await newest(store)
    require((dead.state, dead.reason) == ("dead", "gave up"), "dead_letter must set the delivery aside with its reason")
    require(await store.events() == logged and len(logged) == 1, "dead_letter must log its events")
    await nothing_due(store, "the only delivery is dead", now=due + timedelta(days=1))


async def check_62_a_clock_that_was_set_back_delays_no_delivery(store: DurableStore) -> None:
    """What came later than now is due, although its time seems to be far away."""
    await enqueue_to(store)
    await store.nack(await claim_from(store), reason="no network", available_at=LATER + timedelta(hours=2))
    await nothing_due(store, "the next attempt is not due")
    before = (await newest(store)).created - timedelta(hours=2)
    require(
        await store.claim("/p", "queue", owner="me", lease=60, session_id="s", now=before) is not None,
        "a delivery that came after now must be due",
    )


async def check_142_a_delivery_given_back_by_a_clock_that_was_set_back_keeps_its_pause(store: DurableStore) -> None:
    """It is due once when the clock goes back behind the time of its giving back, and then at the time it was given."""
    await store.enqueue("/p", "queue", "trigger", event_of(), now=LATER)
    place: dict[str, Any] = {"owner": "me", "lease": 60, "session_id": "s"}
    back, pause = LATER - timedelta(hours=2), timedelta(minutes=5)
    await store.nack(await claim_from(store), reason="r", available_at=LATER + pause, now=LATER)
    soon = LATER - timedelta(milliseconds=20)
    require(await store.claim("/p", "queue", **place, now=soon) is None, "one who asked just before must wait as well")
    again = await store.claim("/p", "queue", **place, now=back)
    if again is None:
        raise AssertionError("a delivery given back after now must be due")
    await store.nack(again, reason="r", available_at=back + pause, now=back)
    for passed in (timedelta(), timedelta(seconds=1), pause - timedelta(seconds=1)):
        early = await store.claim("/p", "queue", **place, now=back + passed)
        require(early is None, "a delivery given back by a clock that was set back must keep its pause")
    require(await store.claim("/p", "queue", **place, now=back + pause) is not None, "it must be due after its pause")


async def check_31_what_a_dead_process_claimed_is_released(store: DurableStore) -> None:
    """At once, within its project; its claim is over."""
    await enqueue_to(store)
    await store.enqueue("/q", "queue", "trigger", event_of())
    first = await claim_from(store)
    await store.claim("/q", "queue", owner="me", lease=60, session_id="other", now=LATER)
    require(await store.release("/p") == 1, "release must return how many deliveries it freed")
    await refuses(store.commit(first), StaleEpoch, "commit of a delivery that was released")
    second = await claim_from(store)
    require((second.epoch, second.session_id) == (2, "worker"), "a released delivery must keep its session")
    await nothing_due(store, "the delivery of the other project is still claimed", project="/q")


async def check_32_deliveries_are_listed_newest_first(store: DurableStore) -> None:
    """By project, queue and state."""
    enqueued = [await enqueue_to(store, queue=queue) for queue in ("a", "b", "a")]
    await store.enqueue("/q", "a", "trigger", event_of())
    await store.commit(await claim_from(store, queue="b"))
    for wanted, expected in (({"queue": "a"}, [2, 0]), ({"state": "done"}, [1]), ({"limit": 1}, [2])):
        listed = await store.deliveries(**{"project": "/p", **cast("dict[str, Any]", wanted)})
        ids = [delivery.delivery_id for delivery in listed]
        require(ids == [enqueued[number].delivery_id for number in expected], f"deliveries by {wanted}, newest first")
    require(len(await store.deliveries()) == 4, "deliveries without conditions must return those of all projects")


async def check_33_purge_forgets_finished_deliveries(store: DurableStore) -> None:
    """With their dedupe keys; pending, claimed and dead deliveries stay."""
    for queue in ("done", "dead", "waits", "claimed"):
        await enqueue_to(store, queue=queue, dedupe_key="k")
    await store.enqueue("/p", "refused", "trigger", event_of(dedupe_key="k"), refused="too deep")
    await store.commit(await claim_from(store, queue="done"))
    await store.dead_letter(await claim_from(store, queue="dead"), reason="gave up")
    await claim_from(store, queue="claimed")
    early = await store.purge(before=datetime(2000, 1, 1, tzinfo=UTC))
    require(early.deliveries == 0, "purge must keep what was over only later")
    purged = await store.purge(before=LATER + timedelta(days=400))
    require(purged.deliveries == 2, f"purge must return how many deliveries it forgot: {purged}")
    left = {delivery.queue for delivery in await store.deliveries()}
    require(left == {"dead", "waits", "claimed"}, f"purge must forget what is done or refused, and left {sorted(left)}")
    await enqueue_to(store, queue="done", dedupe_key="k")
    known = await store.enqueue("/p", "dead", "trigger", event_of(dedupe_key="k"))
    require(known is None, "a dead letter's dedupe key must stay known")


async def check_34_purge_shortens_the_log_from_its_beginning(store: DurableStore) -> None:
    """To the given size, and no further than the given time; sequences go on."""
    for number in range(6):
        await store.emit(SessionEvent(f"e{number}", {"x": "y" * 90}, timestamp=LATER + timedelta(days=number)))
    kept = await store.events()
    require(
        (await store.purge(before=LATER + timedelta(days=9), event_bytes=700)).events == 0, "purge of a log that fits"
    )
    purged = await store.purge(before=LATER + timedelta(days=9), event_bytes=400)
    require(purged.events == 2, f"six events of 98 bytes must be four in 400 bytes: {purged}")
    require(await store.events() == kept[2:], "purge must forget the oldest events, and no others")
    require((await store.purge(before=LATER + timedelta(days=3))).events == 1, "purge must keep what is not old enough")
    require(await store.events() == kept[3:], "events must return what purge left")
    require((await store.purge(before=LATER + timedelta(days=9))).events == 3, "purge to no size must forget all")
    require(await store.last_sequence() == kept[-1].sequence, "last_sequence must not go back")
    again = await store.emit(SessionEvent("again", {}))
    require((again.sequence or 0) > (kept[-1].sequence or 0), "a sequence must not be used again")
    require(await store.events(since=kept[0].sequence or 0) == [again], "events after a place that is gone must follow")


DELIVERY_CHECKS = collect_checks(globals())
