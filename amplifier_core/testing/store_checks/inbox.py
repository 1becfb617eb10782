"""What every `Inbox` keeps to, from an event that is offered to its end; it is a `SessionStore` too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from ...errors import SessionNotFound, StaleEpoch
from ...events import SessionEvent
from ...storage import SessionRecord
from .deliveries import LATER, claim_from, emits, event_of, newest, nothing_due, offer_to
from .rules import numbered, refuses, require

if TYPE_CHECKING:
    from ...storage import DurableStore


async def check_20_events_are_logged_in_sequence(store: DurableStore) -> None:
    """And returned from any place on."""
    require(await store.last_sequence() == 0, "last_sequence must be 0 before the first event")
    sent = [SessionEvent("work:done", {"n": [1, "ü"]}, "s1", LATER, "e1", "e0", 3), *emits("b", "c")]
    logged = [await store.emit(event) for event in sent]
    sequences = [event.sequence or 0 for event in logged]
    require(0 < sequences[0] < sequences[1] < sequences[2], f"sequences must grow: {sequences}")
    require([replace(event, sequence=None) for event in logged] == sent, "emit must return the event it was given")
    require(await store.events() == logged, "events must return what was emitted, oldest first")
    require(await store.events(since=sequences[0], limit=1) == logged[1:2], "events must begin after `since`")
    require(await store.last_sequence() == sequences[2], "last_sequence must be that of the newest event")


async def check_21_an_event_that_was_offered_is_delivered(store: DurableStore) -> None:
    """As it was, to its own lane."""
    fields: dict[str, Any] = {"file_path": "/f", "change_type": "modified", "event_name": "n", "depth": 2}
    event = event_of(timestamp=LATER, data={"a": [1, None]}, dedupe_key="k", state={}, cause="c", **fields)
    offered = await store.offer("/p", "lane", "trigger", event)
    require(offered is not None and offered.state == "pending", "offer must return the pending delivery")
    require(await store.deliveries() == [offered], "deliveries must return what was offered")
    await nothing_due(store, "the delivery is another project's", project="/q")
    claimed = await claim_from(store, as_id="worker-1")
    require(claimed.event == event, "the event must be returned as it was offered")
    got = (claimed.state, claimed.attempts, claimed.epoch, claimed.session_id)
    require(got == ("claimed", 1, 1, "worker-1"), f"the first claim must say attempt 1, epoch 1, its session: {got}")
    await nothing_due(store, "the only delivery is claimed")


async def check_22_one_dedupe_key_is_delivered_once(store: DurableStore) -> None:
    """In its lane, even when the first delivery is done; events without a key all count."""
    await offer_to(store, dedupe_key="k")
    require(await store.offer("/p", "lane", "t", event_of(dedupe_key="k")) is None, "a known dedupe_key must give None")
    await store.commit(await claim_from(store))
    require(await store.offer("/p", "lane", "t", event_of(dedupe_key="k")) is None, "a key that is done stays known")
    require(await store.offer("/q", "lane", "t", event_of(dedupe_key="k")) is not None, "a key is known per project")
    for lane, key in (("other", "k"), ("lane", None), ("lane", None)):
        await offer_to(store, lane=lane, dedupe_key=key)


async def check_23_the_state_of_a_trigger_is_stored_with_its_event(store: DurableStore) -> None:
    """Of a duplicate and of a refused event too; by itself as well."""
    require(await store.trigger_state("/p", "trigger") == {}, "the state must be {} before the first event")
    for number, refused in ((1, None), (2, None), (3, "too deep")):
        await store.offer("/p", "lane", "trigger", event_of(dedupe_key="k", state={"at": number}), refused=refused)
        kept = await store.trigger_state("/p", "trigger")
        require(kept == {"at": number}, f"offer must store the state of event {number}, not {kept}")
    await offer_to(store, state=None)
    require(await store.trigger_state("/p", "trigger") == {"at": 3}, "an event without state must keep the last one")
    await store.save_trigger_state("/p", "trigger", {"at": 4})
    require(await store.trigger_state("/p", "trigger") == {"at": 4}, "save_trigger_state must store the state")
    require(await store.trigger_state("/q", "trigger") == {}, "a state must be its project's alone")


async def check_24_a_refused_event_is_recorded_and_not_delivered(store: DurableStore) -> None:
    """With its reason."""
    await store.offer("/p", "lane", "trigger", event_of(), refused="too deep")
    await nothing_due(store, "the only event was refused")
    refused = await store.deliveries(state="refused")
    require([delivery.reason for delivery in refused] == ["too deep"], "a refused event must be listed with its reason")


async def check_25_the_oldest_delivery_is_claimed_first(store: DurableStore) -> None:
    """And each by one worker, however many ask at once."""
    offered = [(await offer_to(store, f"e{number}")).delivery_id for number in range(5)]
    first = (await claim_from(store)).delivery_id
    asked = (store.claim("/p", "lane", owner="w", lease=60, session_id="w", now=LATER) for _ in range(8))
    others = [delivery.delivery_id for delivery in await asyncio.gather(*asked) if delivery is not None]
    require(first == offered[0], "the delivery that was offered first must be claimed first")
    require(sorted(others) == sorted(offered[1:]), "each delivery must be claimed by one worker, and none left")


async def check_26_a_lease_that_ran_out_frees_its_delivery(store: DurableStore) -> None:
    """For a claim of the next epoch, by the same session; `renew` puts it off."""
    await offer_to(store)
    first = await claim_from(store, as_id="first")
    await store.renew(first, lease=60, now=LATER + timedelta(seconds=50))
    await nothing_due(store, "the lease was renewed", now=LATER + timedelta(seconds=100))
    second = await claim_from(store, LATER + timedelta(seconds=111), as_id="second")
    require((second.epoch, second.attempts) == (2, 2), "a claim after the lease must have the next epoch and attempt")
    require(second.session_id == "first", "a later claim must keep the session of the first")


async def check_27_a_stale_epoch_changes_nothing(store: DurableStore) -> None:
    """Whatever its worker tries."""
    await store.create(SessionRecord("worker", name="before"))
    await offer_to(store)
    stale = await claim_from(store)
    await claim_from(store, LATER + timedelta(hours=1))
    before, session = await newest(store), await store.get("worker")
    commit = store.commit(stale, emits=emits("a"), session={"name": "after"})
    await refuses(commit, StaleEpoch, "commit of a stale epoch")
    await refuses(store.renew(stale, lease=60), StaleEpoch, "renew of a stale epoch")
    retry = store.retry(stale, reason="r", available_at=LATER, session={"name": "after"})
    await refuses(retry, StaleEpoch, "retry of a stale epoch")
    bury = store.bury(stale, reason="r", emits=emits("a"), session={"name": "after"})
    await refuses(bury, StaleEpoch, "bury of a stale epoch")
    require(await newest(store) == before, "a stale epoch must not change the delivery")
    require(await store.get("worker") == session, "a stale epoch must not change the session")
    require(await store.events() == [], "a stale epoch must not log events")


async def check_28_a_commit_is_done_whole(store: DurableStore) -> None:
    """Delivery, session and events; a second one is stale."""
    await store.create(SessionRecord("worker"))
    await offer_to(store)
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
    await offer_to(store)
    claimed = await claim_from(store)
    commit = store.commit(claimed, emits=emits("a"), session={"session_id": "nobody", "name": "x"})
    await refuses(commit, SessionNotFound, "commit with an unknown session")
    require(await store.events() == [], "a failed commit must log nothing")
    require(await newest(store) == claimed, "a failed commit must leave the delivery claimed")
    await store.commit(claimed)


async def check_30_a_failed_delivery_comes_back_or_is_set_aside(store: DurableStore) -> None:
    """`retry` not before its time; `bury` for good; each with its session."""
    await store.create(SessionRecord("worker"))
    await offer_to(store)
    due = LATER + timedelta(minutes=5)
    await store.retry(await claim_from(store), reason="the power", available_at=LATER, counted=False)
    require((await newest(store)).attempts == 0, "a claim that is not counted must be no attempt")
    failed = await claim_from(store)
    await store.retry(failed, reason="no network", available_at=due, session={"status": "failed"})
    require((await store.get("worker")).status == "failed", "retry must change the session's record")
    pending = await newest(store)
    got = (pending.state, pending.reason, pending.available_at)
    require(got == ("pending", "no network", due), f"retry must keep the reason and the time: {got}")
    await nothing_due(store, "the next attempt is not due", now=due - timedelta(microseconds=1))
    again = await claim_from(store, due)
    require((again.attempts, again.epoch) == (2, 3), "a retried delivery must be at attempt 2, under a further epoch")
    logged = await store.bury(again, reason="gave up", emits=emits("dead"), session={"status": "completed"})
    require((await store.get("worker")).status == "completed", "bury must change the session's record")
    dead = await newest(store)
    require((dead.state, dead.reason) == ("dead", "gave up"), "bury must set the delivery aside with its reason")
    require(await store.events() == logged and len(logged) == 1, "bury must log its events")
    await nothing_due(store, "the only delivery is dead", now=due + timedelta(days=1))


async def check_31_what_a_dead_process_claimed_is_released(store: DurableStore) -> None:
    """At once, within its project; its claim is over."""
    await offer_to(store)
    await store.offer("/q", "lane", "trigger", event_of())
    first = await claim_from(store)
    await store.claim("/q", "lane", owner="me", lease=60, session_id="other", now=LATER)
    require(await store.release("/p") == 1, "release must return how many deliveries it freed")
    await refuses(store.commit(first), StaleEpoch, "commit of a delivery that was released")
    second = await claim_from(store)
    require((second.epoch, second.session_id) == (2, "worker"), "a released delivery must keep its session")
    await nothing_due(store, "the delivery of the other project is still claimed", project="/q")


async def check_32_deliveries_are_listed_newest_first(store: DurableStore) -> None:
    """By project, lane and state."""
    offered = [await offer_to(store, lane=lane) for lane in ("a", "b", "a")]
    await store.offer("/q", "a", "trigger", event_of())
    await store.commit(await claim_from(store, lane="b"))
    for wanted, expected in (({"lane": "a"}, [2, 0]), ({"state": "done"}, [1]), ({"limit": 1}, [2])):
        listed = await store.deliveries(**{"project": "/p", **cast("dict[str, Any]", wanted)})
        ids = [delivery.delivery_id for delivery in listed]
        require(ids == [offered[number].delivery_id for number in expected], f"deliveries by {wanted}, newest first")
    require(len(await store.deliveries()) == 4, "deliveries without conditions must return those of all projects")


async def check_33_trim_forgets_the_deliveries_that_are_over(store: DurableStore) -> None:
    """With their dedupe keys; what still waits, or waits for a person, stays."""
    for lane in ("done", "dead", "waits", "claimed"):
        await offer_to(store, lane=lane, dedupe_key="k")
    await store.offer("/p", "refused", "trigger", event_of(dedupe_key="k"), refused="too deep")
    await store.commit(await claim_from(store, lane="done"))
    await store.bury(await claim_from(store, lane="dead"), reason="gave up")
    await claim_from(store, lane="claimed")
    early = await store.trim(before=datetime(2000, 1, 1, tzinfo=UTC))
    require(early.deliveries == 0, "trim must keep what was over only later")
    trimmed = await store.trim(before=LATER + timedelta(days=400))
    require(trimmed.deliveries == 2, f"trim must return how many deliveries it forgot: {trimmed}")
    left = {delivery.lane for delivery in await store.deliveries()}
    require(left == {"dead", "waits", "claimed"}, f"trim must forget what is done or refused, and left {sorted(left)}")
    await offer_to(store, lane="done", dedupe_key="k")
    known = await store.offer("/p", "dead", "trigger", event_of(dedupe_key="k"))
    require(known is None, "a dead letter's dedupe key must stay known")


async def check_34_trim_shortens_the_log_from_its_beginning(store: DurableStore) -> None:
    """To the size that is asked for, and no further than the time; sequences go on."""
    for number in range(6):
        await store.emit(SessionEvent(f"e{number}", {"x": "y" * 90}, timestamp=LATER + timedelta(days=number)))
    kept = await store.events()
    require(
        (await store.trim(before=LATER + timedelta(days=9), event_bytes=700)).events == 0, "trim of a log that fits"
    )
    trimmed = await store.trim(before=LATER + timedelta(days=9), event_bytes=400)
    require(trimmed.events == 2, f"six events of 98 bytes must be four in 400 bytes: {trimmed}")
    require(await store.events() == kept[2:], "trim must forget the oldest events, and no others")
    require((await store.trim(before=LATER + timedelta(days=3))).events == 1, "trim must keep what is not old enough")
    require(await store.events() == kept[3:], "events must return what trim left")
    require((await store.trim(before=LATER + timedelta(days=9))).events == 3, "trim to no size must forget all")
    require(await store.last_sequence() == kept[-1].sequence, "last_sequence must not go back")
    again = await store.emit(SessionEvent("again", {}))
    require((again.sequence or 0) > (kept[-1].sequence or 0), "a sequence must not be used again")
    require(await store.events(since=kept[0].sequence or 0) == [again], "events after a place that is gone must follow")


DELIVERY_CHECKS = numbered(globals())
