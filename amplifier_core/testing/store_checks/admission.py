"""Check how deliveries of an `Inbox` wait: by key, by priority, until they settle."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ...errors import StaleEpoch
from ...storage import Admission
from .deliveries import LATER, claim_from, enqueue_to, event_of, nothing_due, reload
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from ...storage import Delivery, DurableStore, Overlap

QUEUED = Admission("key")


def _seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


async def _is_skipped(store: DurableStore, delivery: Delivery, reason: str, rule: str) -> None:
    now = await reload(store, delivery)
    require((now.state, now.reason) == ("skipped", reason), f"{rule}: {now.state}, {now.reason!r}")


async def check_35_deliveries_of_one_key_are_handled_one_at_a_time(store: DurableStore) -> None:
    """In the order of their arrival; deliveries without a key or with another key are independent."""
    enqueued = [await enqueue_to(store, admission=QUEUED) for _ in range(3)]
    other, plain = await enqueue_to(store, admission=Admission("other")), await enqueue_to(store)
    require(enqueued[0].key == "key" and plain.key is None, "a delivery must say its key")
    first = await claim_from(store)
    require(
        first.delivery_id == enqueued[0].delivery_id, "of one key the delivery that came first must be claimed first"
    )
    rest = {(await claim_from(store)).delivery_id for _ in range(2)}
    require(rest == {other.delivery_id, plain.delivery_id}, "a key must hold back the deliveries of that key alone")
    await nothing_due(store, "one of the key is claimed")
    again = await claim_from(store, LATER + _seconds(61))
    require(
        again.delivery_id == first.delivery_id, "one whose lease ran out must be claimed before later ones of its key"
    )
    await store.commit(again)
    second = await claim_from(store, LATER)
    require(second.delivery_id == enqueued[1].delivery_id, "when one of a key is over, the next must be due")
    await store.dead_letter(second, reason="gave up")
    require((await claim_from(store)).delivery_id == enqueued[2].delivery_id, "a dead one must hold back nothing")
    for project, queue in (("/q", "queue"), ("/p", "queue-2")):
        await store.enqueue(project, queue, "trigger", event_of(), admission=QUEUED)
        claimed = await store.claim(project, queue, owner="me", lease=60, session_id="s", now=LATER)
        require(claimed is not None, "a key must hold back nothing of another project or queue")


async def check_36_a_retry_holds_back_the_later_ones_of_its_key(store: DurableStore) -> None:
    """Also while it is not due itself."""
    first = await enqueue_to(store, admission=QUEUED)
    await enqueue_to(store, admission=QUEUED)
    due = LATER + _seconds(300)
    await store.nack(await claim_from(store), reason="no network", available_at=due)
    await nothing_due(store, "an earlier one of the key waits for its retry")
    require((await claim_from(store, due)).delivery_id == first.delivery_id, "the retry must come before later ones")


async def check_37_what_comes_meanwhile_can_be_skipped(store: DurableStore) -> None:
    """As long as an earlier one of its key is pending or claimed, even after its lease."""
    skip, reason = Admission("key", "skip"), "an earlier delivery with the same key is unfinished"
    first = await enqueue_to(store, admission=skip)
    require(first.state == "pending", "what comes when nothing of its key waits must be delivered")
    late = await enqueue_to(store, admission=skip)
    require((late.state, late.reason) == ("skipped", reason), f"enqueue must return what it skips, and why: {late}")
    await _is_skipped(store, late, reason, "while one of the key is pending, another must be stored as skipped")
    claimed = await claim_from(store)
    await _is_skipped(store, await enqueue_to(store, admission=skip), reason, "one is claimed, another must be skipped")
    ran_out = await enqueue_to(store, admission=skip, now=LATER + timedelta(days=1))
    await _is_skipped(store, ran_out, reason, "a claim whose lease ran out must count as one")
    for admission in (Admission("other", "skip"), Admission(None, "skip"), Admission(None, "skip")):
        require(
            (await enqueue_to(store, admission=admission)).state == "pending", "only one of the same key is in the way"
        )
    require(
        (await enqueue_to(store, queue="b", admission=skip)).state == "pending", "another queue's key is another one"
    )
    await store.commit(claimed)
    require(
        (await enqueue_to(store, admission=skip)).state == "pending", "when the first is over the next is delivered"
    )


async def check_38_what_comes_meanwhile_can_replace(store: DurableStore) -> None:
    """Replace pending and claimed deliveries; the claim ends."""
    claimed, _ = (
        await enqueue_to(store, admission=QUEUED),
        await enqueue_to(store, "other", admission=Admission("other")),
    )
    stale = await claim_from(store)
    require(stale.delivery_id == claimed.delivery_id, "the first must be claimed first")
    pending = await enqueue_to(store, admission=QUEUED)
    newest = await enqueue_to(store, event_id="e9", admission=Admission("key", "replace"))
    require(newest.state == "pending", "what replaces others must be pending")
    for each in (claimed, pending):
        await _is_skipped(store, each, "replaced by event e9", "what is replaced must be skipped, with the reason")
    await refuses(store.commit(stale), StaleEpoch, "commit of what was replaced")
    await refuses(store.renew(stale, lease=60), StaleEpoch, "renew of what was replaced")
    await refuses(store.nack(stale, reason="r", available_at=LATER), StaleEpoch, "nack of what was replaced")
    await refuses(store.dead_letter(stale, reason="r"), StaleEpoch, "dead_letter of what was replaced")
    due = {(await claim_from(store)).event.source for _ in range(2)}
    require(due == {"test", "other"}, "what replaces others must be due, and leave the other keys alone")
    await nothing_due(store, "the others were replaced")


async def check_39_the_higher_priority_is_claimed_first(store: DurableStore) -> None:
    """Among equal priorities the longest due comes first."""
    for number, priority in enumerate((0, -1, 5, 0, 5)):
        admission = Admission(priority=priority)
        enqueued = await enqueue_to(store, f"e{number}", admission=admission, now=LATER - _seconds(9 - number))
        require(enqueued.priority == priority, "a delivery must say its priority")
    await enqueue_to(store, "not due", admission=Admission(priority=9, settle_key="file", settle=1), now=LATER)
    sources = [(await claim_from(store)).event.source for _ in range(5)]
    require(sources == ["e2", "e4", "e0", "e3", "e1"], f"priorities 0, -1, 5, 0, 5 were claimed as {sources}")
    await nothing_due(store, "the only one left, of the highest priority, is not due yet")


async def check_40_events_settle_into_the_last(store: DurableStore) -> None:
    """It is due after a quiet time; other keys and queues are independent."""
    settling = Admission(settle_key="file", settle=10)
    first = await enqueue_to(store, admission=settling, now=LATER)
    apart = [await enqueue_to(store, admission=Admission(settle_key="f2", settle=10), now=LATER)]
    apart.append(await enqueue_to(store, queue="b", admission=settling, now=LATER))
    require(first.available_at == LATER + _seconds(10), "what settles must be due `settle` seconds after it came")
    last = await enqueue_to(store, event_id="e2", admission=settling, now=LATER + _seconds(6))
    await _is_skipped(store, first, "settled into event e2", "what comes before the first is due must take its place")
    require(
        last.available_at == LATER + _seconds(16), "the last of a series must be due `settle` seconds after it came"
    )
    require([(await reload(store, each)).state for each in apart] == ["pending"] * 2, "series must be by key and queue")
    require(
        (await claim_from(store, LATER + _seconds(15))).delivery_id == apart[0].delivery_id, "claim of the other key"
    )
    await nothing_due(store, "the series has not settled", now=LATER + _seconds(15))
    require(
        (await claim_from(store, LATER + _seconds(16))).delivery_id == last.delivery_id, "claim of what has settled"
    )


async def check_41_a_series_ends_in_time(store: DurableStore) -> None:
    """At most `settle_within` seconds after its first event; an event after the due time or a claim begins the next
    series.
    """
    settling = Admission(settle_key="file", settle=10, settle_within=15)
    for after, due in ((0, 10), (6, 15), (12, 15)):
        last = await enqueue_to(store, admission=settling, now=LATER + _seconds(after))
        got = (last.available_at - LATER).total_seconds()
        require(got == due, f"the event after {after} s of a series within 15 s must be due at {due}, not {got}")
    second = await enqueue_to(store, admission=settling, now=LATER + _seconds(15))
    require((await reload(store, last)).state == "pending", "what was due must not be settled into a later one")
    require(second.available_at == LATER + _seconds(25), "what comes after a series must begin a series of its own")
    tried = await claim_from(store, LATER + _seconds(25))
    await store.nack(tried, reason="no network", available_at=LATER + _seconds(99))
    await enqueue_to(store, admission=settling, now=LATER + _seconds(26))
    require((await reload(store, tried)).state == "pending", "what was claimed before must not be settled any more")


async def check_42_a_known_event_admits_nothing(store: DurableStore) -> None:
    """The store compares the `dedupe_key` before it replaces or settles anything."""
    first = await enqueue_to(store, admission=Admission("key", settle_key="s", settle=60), dedupe_key="d", now=LATER)
    overlaps: tuple[Overlap, ...] = ("queue", "skip", "replace")
    for overlap in overlaps:
        admission = Admission("key", overlap, settle_key="s", settle=60)
        again = await store.enqueue("/p", "queue", "t", event_of(dedupe_key="d"), admission=admission, now=LATER)
        require(again is None, "an event that is known must give None, whatever its admission")
    require(await store.deliveries() == [first], "an event that is known must change nothing")


async def check_43_a_refused_event_takes_part_in_nothing(store: DurableStore) -> None:
    """It replaces and settles none, and none waits for it."""
    first = await enqueue_to(store, admission=Admission("key", settle_key="s", settle=60), now=LATER)
    admission = Admission("key", "replace", settle_key="s", settle=60)
    refused = await store.enqueue("/p", "queue", "t", event_of(), admission=admission, refused="too deep", now=LATER)
    require(refused is not None and refused.state == "refused", "a refused event must be stored as refused")
    require(await reload(store, first) == first, "a refused event must not replace or settle another")
    await store.enqueue("/p", "queue", "t", event_of(), admission=Admission("r"), refused="too deep")
    following = await enqueue_to(store, admission=Admission("r", "skip"))
    require(following.state == "pending", "a refused event must not be in the way of another")
    require((await claim_from(store)).delivery_id == following.delivery_id, "claim after one that was refused")


async def check_44_what_is_skipped_settles_nothing(store: DurableStore) -> None:
    """And a delivery it would settle is not in its way."""
    admission = Admission("key", "skip", settle_key="s", settle=60)
    first = await enqueue_to(store, admission=admission, now=LATER)
    second = await enqueue_to(store, admission=admission, event_id="e2", now=LATER)
    require(second.state == "pending", "what settles another into itself must not be skipped for that one")
    await _is_skipped(store, first, "settled into event e2", "what comes in time must take the place of the first")
    await enqueue_to(store, admission=QUEUED, now=LATER)
    third = await enqueue_to(store, admission=admission, now=LATER)
    require(third.state == "skipped", "what comes while another of its key waits must be skipped")
    require((await reload(store, second)).state == "pending", "what is skipped must not take the place of another")


ADMISSION_CHECKS = collect_checks(globals())
