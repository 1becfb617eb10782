"""Check what two processes with one store do to each other; every `DurableStore` keeps these rules."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...documents import DocumentChange
from ...errors import SessionConflict, StaleEpoch
from ...events import SessionEvent
from ...storage import Admission, SessionRecord
from .deliveries import LATER, event_of
from .processes import run_together
from .rules import collect_checks, refuses, require
from .workloads import (
    PAUSE,
    QUEUE,
    append_turns,
    claim_all,
    count_up,
    enqueue_many,
    follow_log,
    hear_commit,
    kinds,
    work,
    write_events,
)

if TYPE_CHECKING:
    from ...storage import Delivery
    from .processes import StoreProcess, Stores

SOON = LATER + timedelta(seconds=30)
OVER = LATER + timedelta(seconds=61)
"""After the lease of a claim made at `LATER`."""


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def _claim(process: StoreProcess, project: str, session_id: str, **more: Any) -> Delivery | None:
    given = {"owner": process.name, "lease": 60, "session_id": session_id, "now": LATER, **more}
    claimed: Delivery | None = await process.claim(project, QUEUE, **given)
    return claimed


async def check_82_a_process_reads_at_once_what_another_has_stored(stores: Stores) -> None:
    """Sessions, messages, events, deliveries and the states of triggers."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark, project=mark))
    require(await right.append(mark, [_user("one")], at=0) == 1, "append must find the session of another process")
    await left.append(mark, [_user("two")], at=1)
    await right.update(mark, name="named")
    record = await left.get(mark)
    require((record.name, record.message_count) == ("named", 2), f"get must return what others stored: {record}")
    require(await right.read(mark) == [_user("one"), _user("two")], "read must return the messages of both")
    event = await left.emit(SessionEvent(mark, {}))
    seen = [each.event_id for each in await right.events(since=event.sequence - 1)]
    require(event.event_id in seen, "events must return what another process logged")
    stored = await right.enqueue(mark, QUEUE, "trigger", event_of(state={"at": 1}))
    require(await left.trigger_state(mark, "trigger") == {"at": 1}, "a state must be that of the last event of all")
    require(await left.deliveries(project=mark) == [stored], "deliveries must return what others enqueued")
    await left.delete(mark)
    require(await right.find(mark) == [], "find must not return what another process deleted")


async def check_83_a_reader_misses_no_event_while_two_processes_write(stores: Stores) -> None:
    """It reads on from the last sequence that it saw: none may appear behind it."""
    left, right, mark = stores.left, stores.right, stores.mark
    each = max(1, stores.size // 8)
    async with stores.another() as reader:
        begin = await reader.last_sequence()

        async def write() -> list[str]:
            both = (("left", left), ("right", right))
            steps = (process.run(write_events, mark, f"{mark}-{side}", each) for side, process in both)
            sent = [event_id for ids in await run_together(*steps) for event_id in ids]
            await left.emit(SessionEvent(mark, {}, event_id=f"{mark}-last"))
            return sent

        read, sent = await run_together(reader.run(follow_log, begin, f"{mark}-last"), write())
    sequences, ids = [sequence for sequence, _ in read], {event_id for _, event_id in read}
    missed = [event_id for event_id in sent if event_id not in ids]
    require(sorted(set(sequences)) == sequences, "each event must have a sequence of its own, and they must grow")
    require(not missed, f"events(since=…) never returned {len(missed)} of {len(sent)} events, such as {missed[:3]}")


async def check_84_a_delivery_is_claimed_by_one_process(stores: Stores) -> None:
    """However many ask at once, and none is left."""
    left, right, mark = stores.left, stores.right, stores.mark
    sources = [f"e{number}" for number in range(max(8, stores.size // 4))]
    await left.run(enqueue_many, mark, sources)
    claims = (process.run(claim_all, mark, process.name) for process in (left, right))
    claimed = [each for claims_of_one in await asyncio.gather(*claims) for each in claims_of_one]
    ids = [each.delivery_id for each in claimed]
    twice = len(ids) - len(set(ids))
    require(not twice, f"a delivery must be claimed once; {twice} of {len(sources)} were claimed again")
    require(len(ids) == len(sources), f"claim must return every due delivery: {len(ids)} of {len(sources)}")


async def check_85_deliveries_with_one_key_go_one_after_another(stores: Stores) -> None:
    """In the order of their arrival; none is stuck, although two processes enqueue and handle them at once."""
    left, right, mark = stores.left, stores.right, stores.mark
    begin, each = await left.last_sequence(), max(8, stores.size // 8)
    works = [
        process.run(
            work, mark, process.name, [f"{side}-{number}" for number in range(each)], 2 * each, stores.patience / 2
        )
        for side, process in (("left", left), ("right", right))
    ]
    stuck = max(await asyncio.gather(*works))
    require(stuck == 0, f"{stuck} of {2 * each} deliveries with keys were never due")
    _require_order(await _steps(left, mark, begin), mark)


async def _steps(process: StoreProcess, project: str, since: int) -> list[SessionEvent]:
    events = await process.events(since=since, limit=10**9)
    return [event for event in events if event.project == project]


def _require_order(steps: list[SessionEvent], project: str) -> None:
    begun: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    at_work: dict[str, str] = {}
    for step in steps:
        key, source = step.data["key"], step.data["source"]
        if step.name == "end":
            require(at_work.pop(key, None) == source, f"{source} with the key {key} ended while another was at work")
            continue
        require(key not in at_work, f"{source} began while {at_work.get(key)} with the same key {key} was at work")
        at_work[key] = source
        side, _, number = source.partition("-")
        require(begun[side, key] < int(number), f"{source} with the key {key} began after a later one")
        begun[side, key] = int(number)


async def check_86_a_dedupe_key_counts_once_in_all_processes(stores: Stores) -> None:
    """Of two that enqueue the same at once, one gets None."""
    left, right, mark = stores.left, stores.right, stores.mark
    sources = [f"e{number}" for number in range(max(8, stores.size // 4))]
    enqueue = (process.run(enqueue_many, mark, sources, dedupe=True) for process in (left, right))
    new = sorted(source for of_one in await asyncio.gather(*enqueue) for source in of_one)
    require(new == sorted(sources), f"each dedupe_key must be new once: {len(new)} of {len(sources)} were")
    counts = await left.delivery_counts(project=mark)
    require([each.counts for each in counts] == [{"pending": len(sources)}], f"one delivery for each key: {counts}")


async def check_87_a_claim_that_another_process_took_over_is_stale(stores: Stores) -> None:
    """Its process changes nothing any more."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark))
    await left.enqueue(mark, QUEUE, "trigger", event_of())
    stale = await _claim(left, mark, mark)
    require(stale is not None, "claim must return the delivery that is due")
    require(await _claim(right, mark, mark, now=SOON) is None, "a claim must hold for its lease, in all processes")
    taken = await _claim(right, mark, mark, now=OVER)
    require(taken is not None and taken.epoch == 2, f"another process must claim it after the lease: {taken}")
    begin = await left.last_sequence()
    session = {"name": "late"}
    for what, attempt in {
        "renew": left.renew(stale, lease=60, now=OVER),
        "commit": left.commit(stale, emits=[SessionEvent(mark, {})], session=session),
        "nack": left.nack(stale, reason="late", available_at=LATER, session=session),
        "dead_letter": left.dead_letter(stale, reason="late", emits=[SessionEvent(mark, {})], session=session),
    }.items():
        await refuses(attempt, StaleEpoch, f"{what} of a claim that another process took over")
    require(await right.deliveries(project=mark) == [taken], "a stale claim must not change the delivery")
    require((await right.get(mark)).name == "", "a stale claim must not change the session")
    require(await right.events(since=begin) == [], "a stale claim must log nothing")
    await right.commit(taken, emits=[SessionEvent(mark, {})], session={"name": "done"})
    require((await left.get(mark)).name == "done", "the claim that holds must be committed")


async def check_88_appends_of_two_processes_conflict(stores: Stores) -> None:
    """They never interleave, and none is lost."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark))
    both = (process.append(mark, [_user(process.name)] * 2, at=0) for process in (left, right))
    ended = await asyncio.gather(*both, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, SessionConflict)]
    require(len(refused) == 1, f"of two appends after the same message one must raise SessionConflict: {ended}")
    turns = max(4, stores.size // 20)
    await asyncio.gather(*(process.run(append_turns, mark, process.name, turns) for process in (left, right)))
    texts = [message["content"] for message in await left.read(mark)][2:]
    for name in (left.name, right.name):
        mine = [text for text in texts if text.startswith(name)]
        expected = [f"{name} {turn} {part}" for turn in range(turns) for part in range(3)]
        require(mine == expected, f"{len(mine)} of {len(expected)} appended messages are there, or in another order")
    together = [texts[at : at + 3] for at in range(0, len(texts), 3)]
    torn = [turn for turn in together if len({text[:-2] for text in turn}) != 1]
    require(not torn, f"the messages of one append must stay together: {torn[:1]}")


async def check_89_a_fork_shares_what_its_source_had(stores: Stores) -> None:
    """Whatever another process appends to the source meanwhile."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark))
    forks: list[SessionRecord] = []
    appended = asyncio.Event()

    async def append() -> None:
        await left.run(append_turns, mark, left.name, 20)
        appended.set()

    async def fork() -> None:
        while not appended.is_set() or not forks:
            forks.append(await right.create(SessionRecord(f"{mark}-{len(forks)}", fork_of=mark)))

    await run_together(append(), fork())
    history = await right.read(mark)
    for made in forks[-20:]:
        at = made.fork_at or 0
        require(at % 3 == 0, f"a fork must see whole appends, not the first {at} messages")
        shared = await right.read(made.session_id)
        require(shared == history[:at], f"a fork must have the first {at} messages of its source")


async def check_90_a_killed_process_keeps_its_claim_until_the_lease_ends(stores: Stores) -> None:
    """And no longer; what it had stored is there, and its session goes on."""
    left, mark = stores.left, stores.mark
    await left.enqueue(mark, QUEUE, "trigger", event_of())
    async with stores.another() as killed:
        await killed.create(SessionRecord(mark))
        first = await _claim(killed, mark, mark)
        await killed.append(mark, [_user("before the kill")], at=0)
        await killed.kill()
    require(first is not None, "claim must return the delivery that is due")
    require(await _claim(left, mark, "other", now=SOON) is None, "a claim must hold for its lease, also of a dead one")
    second = await _claim(left, mark, "other", now=OVER)
    require(second is not None, "the claim of a killed process must end with its lease")
    assert second is not None
    require((second.epoch, second.session_id) == (2, mark), "the next claim must have epoch 2, and the first session")
    require(await left.read(mark) == [_user("before the kill")], "what a killed process stored must be there")
    await left.commit(second)


async def check_91_a_process_is_killed_while_it_writes(stores: Stores) -> None:
    """What it was told to be stored is stored; others go on at once."""
    left, mark = stores.left, stores.mark
    begin = await left.last_sequence()
    stored: list[str] = []

    async def emit(process: StoreProcess, count: int, reached: asyncio.Event) -> None:
        with suppress(ConnectionAbortedError):
            while True:
                stored.append((await process.emit(SessionEvent(mark, {}))).event_id)
                if len(stored) >= count:
                    reached.set()

    async def kill(process: StoreProcess, reached: asyncio.Event) -> None:
        await reached.wait()
        await process.kill()

    for count in (5, 50):
        reached = asyncio.Event()
        async with stores.another() as killed:
            await run_together(emit(killed, count, reached), kill(killed, reached))
        stored.append((await left.emit(SessionEvent(mark, {}))).event_id)
    logged = [event.event_id for event in await left.events(since=begin, limit=10**9) if event.name == mark]
    lost = [event_id for event_id in stored if event_id not in logged]
    require(not lost, f"{len(lost)} of {len(stored)} events that emit had returned are gone after a kill")
    require(len(logged) <= len(stored) + 2, f"a kill must leave one event without an answer at most: {len(logged)}")


async def check_92_a_replacement_ends_the_claim_of_another_process(stores: Stores) -> None:
    """`overlap="replace"`: the delivery at work elsewhere is skipped, and the new one is due."""
    left, right, mark = stores.left, stores.right, stores.mark
    replacing = Admission(key="k", overlap="replace")
    await left.enqueue(mark, QUEUE, "trigger", event_of("first"), admission=replacing)
    first = await _claim(left, mark, f"{mark}-1")
    await right.enqueue(mark, QUEUE, "trigger", event_of("second"), admission=replacing)
    second = await _claim(right, mark, f"{mark}-2")
    require(second is not None and second.event.source == "second", f"the new delivery must be due: {second}")
    await refuses(left.commit(first), StaleEpoch, "commit of a claim whose delivery was replaced by another process")


async def check_93_a_document_that_two_processes_change_loses_nothing(stores: Stores) -> None:
    """Of a store with documents: one of two changes of the same version is refused."""
    left, right, mark = stores.left, stores.right, stores.mark
    if "DocumentStore" not in await left.run(kinds):
        return
    times = max(5, stores.size // 20)
    await asyncio.gather(*(process.run(count_up, mark, times) for process in (left, right)))
    counted = (await left.document(mark, "counters", "one")).data["count"]
    require(counted == 2 * times, f"two processes counted to {counted} together, not to {2 * times}")
    change = DocumentChange(mark, "counters", "two", {"count": 1})
    ended = await asyncio.gather(
        *(process.write_documents([change]) for process in (left, right)), return_exceptions=True
    )
    require(sum(each == [] for each in ended) == 1, f"of two new documents with one key one must be refused: {ended}")


async def check_94_a_process_hears_of_commits_of_another(stores: Stores) -> None:
    """Of a store that shows views; the check goes on storing until the listener is there."""
    left, right, mark = stores.left, stores.right, stores.mark
    if "StoreViews" not in await left.run(kinds):
        return
    heard = asyncio.Event()

    async def hear() -> bool:
        told: bool = await left.run(hear_commit, stores.patience / 2)
        heard.set()
        return told

    async def store() -> None:
        while not heard.is_set():
            await right.emit(SessionEvent(mark, {}))
            await asyncio.sleep(10 * PAUSE)

    [told, _] = await run_together(hear(), store())
    require(told, f"watch_commits must tell of a commit of another process within {stores.patience / 2:g} s")


TWO_PROCESS_CHECKS = collect_checks(globals())
