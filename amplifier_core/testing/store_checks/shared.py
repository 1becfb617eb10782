"""Check the contract of a shared store with numbered checks for its author to run, in two processes and more.

    async def test_the_contract(dsn):
        await check_shared_store("my_package:open_store", {"dsn": dsn})

The factory is called in other processes: `MODULE:FUNCTION` must be importable there. A broken rule raises
`AssertionError` with a sentence naming the rule. Nothing here needs a test runner; pytest can parametrise a test over
`TWO_PROCESS_CHECKS`, which every durable store keeps, and `SHARED_CHECKS`, each called with `Stores`. All use one
store, which need not be empty; it is theirs: they leave what they write, and purge what is finished.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...documents import DocumentChange
from ...errors import StaleEpoch
from ...events import SessionEvent
from ...shared_stores import Bounds
from ...storage import Admission, SessionRecord
from .deliveries import event_of
from .processes import Stores, run_tasks
from .rules import collect_checks, refuses, require
from .two_processes import TWO_PROCESS_CHECKS
from .workloads import (
    PAUSE,
    QUEUE,
    append_until_refused,
    claim_all,
    enqueue_many,
    hear_news,
    kinds,
    lead_all,
    reserve_places,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from ...shared_stores import Lease
    from ...storage import Delivery
    from .processes import StoreProcess

__all__ = ["SHARED_CHECKS", "TWO_PROCESS_CHECKS", "Stores", "check_shared_store"]

HOUR = 3600.0
SHORT = 0.5
"""Seconds of a lease whose end a check waits for."""


async def check_shared_store(
    factory: str, config: Mapping[str, Any], *, shared: bool = True, size: int = 400, patience: float = 60.0
) -> None:
    """Run every check on the store that `factory`, `module:function`, opens with `config`. Raises `AssertionError`.

    `shared=False` leaves out the checks of a `SharedStore`. `size` is the number of events, deliveries and messages
    where many are written; `patience` the most seconds for one step.
    """
    stores = Stores(factory, config, size=size, patience=patience)
    try:
        for check in TWO_PROCESS_CHECKS + (SHARED_CHECKS if shared else ()):
            try:
                await check(stores)
            except AssertionError as broken:
                raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken
    finally:
        await stores.close()


async def _claim(process: StoreProcess, project: str, *, lease: float = 60, **more: Any) -> Delivery | None:
    """Claim at the store's own time."""
    given = {"owner": process.name, "lease": lease, "session_id": "session", **more}
    claimed: Delivery | None = await process.claim(project, QUEUE, **given)
    return claimed


async def _claim_due(process: StoreProcess, project: str, **more: Any) -> Any:
    claimed = await _claim(process, project, **more)
    require(claimed is not None, "claim must return the delivery that is due")
    return claimed


async def _until(what: str, stores: Stores, attempt: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Return the first result of `attempt` that is not None."""
    with suppress(TimeoutError):
        async with asyncio.timeout(stores.patience):
            while True:
                result = await attempt(*arguments)
                if result is not None:
                    return result
                await asyncio.sleep(PAUSE)
    raise AssertionError(f"{what}; it did not within {stores.patience:g} s")


async def check_101_a_shared_store_has_all_methods(stores: Stores) -> None:
    """Those of a `DurableStore`, too; its deliveries are shared ones."""
    found = await stores.left.run(kinds)
    require({"DurableStore", "SharedStore"} <= set(found), f"a shared store must be a SharedStore, not only {found}")
    mark = stores.mark
    enqueued = await stores.left.enqueue(mark, QUEUE, "trigger", event_of())
    kind = type(enqueued).__name__
    require(kind == "SharedDelivery", f"a shared store must return SharedDelivery, not {kind}")
    require((list(enqueued.owners), enqueued.only_on) == ([], None), "a new delivery must have no owners and any host")


async def check_102_only_the_clock_of_the_store_decides_about_claims(stores: Stores) -> None:
    """Hosts whose clocks are an hour ahead or behind take nothing early, and hold nothing longer."""
    left = stores.left
    for shift in (HOUR, -HOUR):
        async with stores.another(shift=shift) as wrong:
            mark, what = stores.mark, f"a host whose clock is {shift / HOUR:+g} h wrong"
            await _require_time(left, await wrong.now(), f"now() of {what}")
            await wrong.enqueue(mark, QUEUE, "trigger", event_of())
            await _claim_due(left, mark)
            require(await _claim(wrong, mark) is None, f"{what} must not take a claim whose lease goes on")
            await left.enqueue(mark, QUEUE, "trigger", event_of())
            claimed = await _claim_due(wrong, mark)
            require(await _claim(left, mark) is None, f"a claim of {what} must hold for its lease")
            await wrong.renew(claimed, lease=60)
            require(await _claim(left, mark) is None, f"a claim that {what} renewed must hold for its lease")
            await _require_time(left, claimed.created, f"the time of a delivery of {what}")
            await wrong.renew(claimed, lease=SHORT)
            await _until(f"a claim of {what} must end with its lease", stores, _claim, left, mark)


async def check_103_only_the_clock_of_the_store_decides_about_leases_and_due_times(stores: Stores) -> None:
    """The same for names, settling, redelivery and signs of life."""
    left = stores.left
    for shift in (HOUR, -HOUR):
        async with stores.another(shift=shift) as wrong:
            mark, what = stores.mark, f"a host whose clock is {shift / HOUR:+g} h wrong"
            await left.lead(f"{mark}-left", owner=left.name, lease=60)
            await wrong.lead(f"{mark}-wrong", owner=wrong.name, lease=60)
            require(await wrong.lead(f"{mark}-left", owner=wrong.name, lease=60) is None, f"{what} must steal no lease")
            require(await left.lead(f"{mark}-wrong", owner=left.name, lease=60) is None, f"a lease of {what} must hold")
            settling = Admission(settle_key="s", settle=60)
            stored = await wrong.enqueue(mark, QUEUE, "trigger", event_of(), admission=settling)
            due = stored.available_at - timedelta(seconds=60)
            await _require_time(left, due, f"the time from which a delivery of {what} settles")
            await wrong.drop(stored.delivery_id, reason="not wanted")
            again = await wrong.redeliver(stored.delivery_id)
            await _require_time(left, again.available_at, f"the time at which {what} makes a delivery due")
            await _claim_due(left, mark)
            await wrong.present(wrong.name, {})
            [presence] = [each for each in await left.processes() if each.process == wrong.name]
            await _require_time(left, presence.seen, f"the sign of {what}")
            await wrong.absent(wrong.name)


async def _require_time(process: StoreProcess, time: datetime, what: str) -> None:
    away = abs((await process.now() - time).total_seconds())
    require(away < HOUR / 2, f"{what} must be that of the store's clock; it is {away:.0f} s away")


async def check_104_a_fence_checks_every_write(stores: Stores) -> None:
    """It lets the claim that holds write, and refuses it once another process has the delivery."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark))
    await left.create(SessionRecord(f"{mark}-kept"))
    await left.enqueue(mark, QUEUE, "trigger", event_of())
    stale = await _claim_due(left, mark)
    for write in _writes(left.fenced(stale), mark, 0, f"{mark}-0").values():
        await write
    taken = await _take_over(right, mark)
    begin = await right.last_sequence()
    for what, write in _writes(left.fenced(stale), mark, 1, f"{mark}-kept").items():
        await refuses(write, StaleEpoch, f"{what} fenced by a claim that was taken over")
    await _require_unwritten(right, mark, begin)
    for write in _writes(right.fenced(taken), mark, 1, f"{mark}-1").values():
        await write
    await right.commit(taken)
    late = right.fenced(taken).emit(SessionEvent(mark, {}))
    await refuses(late, StaleEpoch, "emit fenced by a claim that is committed")
    await left.fenced(stale).close()
    require(await left.last_sequence() > begin, "closing a fenced store must leave the store open")


async def _take_over(process: StoreProcess, project: str) -> Any:
    """Claim what others have claimed for a minute, at the time after that."""
    return await _claim_due(process, project, now=await process.now() + timedelta(seconds=61))


def _writes(store: Any, mark: str, at: int, gone: str) -> dict[str, Awaitable[object]]:
    """Return one write of each method; `gone` is the session to delete."""
    return {
        "create": store.create(SessionRecord(f"{mark}-{at}")),
        "append": store.append(mark, [{"role": "user", "content": str(at)}], at=at),
        "update": store.update(mark, name=str(at)),
        "delete": store.delete(gone),
        "emit": store.emit(SessionEvent(mark, {})),
        "write_documents": store.write_documents([DocumentChange(mark, "things", "one", {"at": at}, at)]),
        "save_trigger_state": store.save_trigger_state(mark, "trigger", {"at": at}),
    }


async def _require_unwritten(process: StoreProcess, mark: str, begin: int) -> None:
    """Raise `AssertionError` unless the refused writes have changed nothing."""
    record = await process.get(mark)
    require((record.name, record.message_count) == ("0", 1), f"a refused write must not change a session: {record}")
    names = {each.session_id for each in await process.find(mark)}
    require(names == {mark, f"{mark}-kept"}, f"a refused write must neither create nor delete a session: {names}")
    require(await process.last_sequence() == begin, "a refused emit must log nothing")
    document = await process.document(mark, "things", "one")
    require(document.version == 1, "a refused write must not change a document")
    state = await process.trigger_state(mark, "trigger")
    require(state == {"at": 0}, f"a refused write must not change the state of a trigger: {state}")


async def check_105_a_frozen_process_writes_nothing_after_its_claim_was_taken_over(stores: Stores) -> None:
    """Stopped at any moment, past its lease: others go on at once, and it is refused when it wakes up."""
    left = stores.left
    async with stores.another() as zombie:
        for _ in range(3):
            mark = stores.mark
            await left.create(SessionRecord(mark))
            await left.enqueue(mark, QUEUE, "trigger", event_of())
            stale = await _claim_due(zombie, mark)
            async with run_tasks() as group:
                writing = group.create_task(zombie.fenced(stale).run(append_until_refused, mark))
                await _until("a claim that holds must append", stores, _has_messages, left, mark)
                zombie.freeze()
                try:
                    later = await left.now() + timedelta(seconds=61)
                    what = "claim must take over from a process that is frozen past its lease"
                    taken = await _until(what, stores, _claim_at, left, mark, later)  # it may hold a lock for a while
                    at = (await left.get(mark)).message_count
                    await left.fenced(taken).append(mark, [{"role": "user", "content": "the owner"}], at=at)
                finally:
                    zombie.thaw()
            require(
                await writing == "StaleEpoch", f"append after a takeover must raise StaleEpoch, not {await writing}"
            )
            last = (await left.read(mark))[-1]["content"]
            require(last == "the owner", f"a process whose claim is over must not write after the owner: {last!r}")
            await refuses(zombie.renew(stale, lease=60), StaleEpoch, "renew of a claim that was taken over")
            await left.commit(taken)


async def _claim_at(process: StoreProcess, project: str, now: datetime) -> Delivery | None:
    return await _claim(process, project, now=now)


async def _has_messages(process: StoreProcess, session_id: str) -> bool | None:
    return (await process.get(session_id)).message_count > 0 or None


async def check_106_a_name_has_one_leader(stores: Stores) -> None:
    """Its epoch grows with each new owner; the owner extends it, and resigns."""
    left, right, mark = stores.left, stores.right, stores.mark
    names = [f"{mark}-{number:03}" for number in range(max(10, stores.size // 10))]
    leads = await asyncio.gather(*(process.run(lead_all, names, process.name) for process in (left, right)))
    led = Counter(name for names_of_one in leads for name in names_of_one)
    require(set(led) == set(names) and set(led.values()) == {1}, f"each name must have one leader: {led}")
    name = f"{mark}-name"
    first = await left.lead(name, owner=left.name, lease=60)
    require(await right.lead(name, owner=right.name, lease=60) is None, "lead must give None while another leads")
    more = await left.lead(name, owner=left.name, lease=120)
    require((more.epoch, more.until > first.until) == (first.epoch, True), f"lead must extend the own lease: {more}")
    listed = [each for each in await right.leases() if each.name.startswith(mark)]
    require([each.name for each in listed] == [*names, name], "leases must return those that hold, in their order")
    require(listed[-1] == more, f"leases must return what lead returned: {listed[-1]}")
    await left.resign(more)
    second = await right.lead(name, owner=right.name, lease=60)
    require(second is not None and second.epoch > more.epoch, f"a resigned name must be free, its epoch new: {second}")
    await left.resign(more)
    require(await left.lead(name, owner=left.name, lease=60) is None, "resign of a lost lease must change nothing")


async def check_107_a_lease_ends_when_nobody_extends_it(stores: Stores) -> None:
    """The own one goes on with its epoch unless somebody took it meanwhile."""
    left, right, mark = stores.left, stores.right, stores.mark
    first = await left.lead(mark, owner=left.name, lease=SHORT)
    await _until("a lease must end", stores, _has_ended, right, first.until)
    require(mark not in [each.name for each in await right.leases()], "leases must not return one that has ended")
    again = await left.lead(mark, owner=left.name, lease=SHORT)
    require(again is not None and again.epoch == first.epoch, f"an own lease that nobody took must go on: {again}")
    what = "lead must give a name whose lease has ended"
    second = await _until(what, stores, _lead, right, mark)
    require(second.epoch > first.epoch, f"the epoch must grow with each new owner: {first.epoch}, {second.epoch}")
    require(second.until > first.until, "a new lease must end later than the one before")


async def _lead(process: StoreProcess, name: str) -> Lease | None:
    lease: Lease | None = await process.lead(name, owner=process.name, lease=60)
    return lease


async def _has_ended(process: StoreProcess, until: datetime) -> bool | None:
    return await process.now() > until or None


async def check_108_a_leader_whose_lease_is_over_enqueues_nothing(stores: Stores) -> None:
    """Neither its event nor the state of its trigger is stored."""
    left, right, mark = stores.left, stores.right, stores.mark
    first = await left.lead(mark, owner=left.name, lease=60)
    event = event_of(dedupe_key="one", state={"at": 1})
    stored = await left.enqueue(mark, QUEUE, "trigger", event, leader=first)
    require(stored is not None, "enqueue by the leader must return the delivery")
    await left.resign(first)
    await _require_refused(left, mark, first, "has resigned")
    await right.lead(mark, owner=right.name, lease=60)
    await _require_refused(left, mark, first, "was replaced")
    short = await left.lead(f"{mark}-short", owner=left.name, lease=SHORT)
    await _until("a lease must end", stores, _has_ended, right, short.until)
    await _require_refused(left, mark, short, "has not extended its lease")
    require(await right.trigger_state(mark, "trigger") == {"at": 1}, "a stale leader must not change a trigger's state")
    require(await right.deliveries(project=mark) == [stored], "a stale leader must store no delivery")
    new = await right.enqueue(mark, QUEUE, "trigger", event_of(dedupe_key="two"))
    require(new is not None, "a stale leader must leave no dedupe_key")


async def _require_refused(process: StoreProcess, project: str, leader: Lease, why: str) -> None:
    for key in ("one", "two"):
        late = event_of(dedupe_key=key, state={"at": 2})
        attempt = process.enqueue(project, QUEUE, "trigger", late, leader=leader)
        await refuses(attempt, StaleEpoch, f"enqueue by a leader that {why}")


async def check_109_the_bound_of_running_claims_counts_all_processes(stores: Stores) -> None:
    """Of one queue; a claim whose lease has ended does not count."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.run(enqueue_many, mark, [f"e{number}" for number in range(20)])
    await left.run(enqueue_many, f"{mark}-other", ["another queue"])
    await _claim_due(left, f"{mark}-other")
    bounds = Bounds(running=3)
    claims = (process.run(claim_all, mark, process.name, bounds=bounds) for process in (left, right))
    claimed = [each for of_one in await asyncio.gather(*claims) for each in of_one]
    require(len(claimed) == 3, f"at most 3 deliveries may be claimed at a time, and 3 must: {len(claimed)}")
    await left.commit(claimed[0])
    short = await _claim_due(right, mark, bounds=bounds)
    require(await _claim(left, mark, bounds=bounds) is None, "the bound must hold after a commit and a claim")
    later = await left.now() + timedelta(seconds=61)
    again = await _claim(left, mark, bounds=bounds, now=later)
    require(again is not None, "a claim whose lease has ended must not count")
    assert again is not None
    require(again.delivery_id == short.delivery_id, "the longest due must be claimed first, after its lease as well")


async def check_110_the_bound_of_begun_claims_counts_all_processes(stores: Stores) -> None:
    """Within its period, also what is finished."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.run(enqueue_many, mark, [f"e{number}" for number in range(20)])
    bounds = Bounds(begun=4, period=HOUR)
    claims = (process.run(claim_all, mark, process.name, bounds=bounds) for process in (left, right))
    claimed = [each for of_one in await asyncio.gather(*claims) for each in of_one]
    require(len(claimed) == 4, f"at most 4 claims may be made within the period, and 4 must: {len(claimed)}")
    for delivery in claimed:
        await left.commit(delivery)
    require(await _claim(right, mark, bounds=bounds) is None, "a claim that is committed must count")
    later = await left.now() + timedelta(seconds=HOUR + 1)
    require(await _claim(right, mark, bounds=bounds, now=later) is not None, "a claim must not count after the period")


async def check_111_a_delivery_for_one_host_is_claimed_there(stores: Stores) -> None:
    """Until another host adopts it; what is done stays as it was."""
    left, right, mark = stores.left, stores.right, stores.mark
    gone = f"{mark}-gone"
    for _ in range(3):
        await right.enqueue(mark, QUEUE, "trigger", event_of(), only_on=gone)
    stored = (await left.deliveries(project=mark))[0]
    require(stored.only_on == gone, f"a delivery must keep its host: {stored.only_on}")
    require(await _claim(left, mark) is None, "a delivery for another host must not be claimed")
    await left.commit(await _claim_due(left, mark, owner=f"process@{gone}"))
    require(await left.adopt(gone, "left") == 2, "adopt must return the number of deliveries that it gave")
    require(
        await _claim(left, mark, owner=f"process@{gone}") is None, "an adopted delivery must be the new host's alone"
    )
    for _ in range(2):
        await _claim_due(left, mark)
    require(await right.adopt(gone, "right") == 0, "adopt must find nothing the second time")


async def check_112_places_of_a_rate_are_taken_once(stores: Stores) -> None:
    """By all processes together; other names and projects have rates of their own."""
    left, right, mark = stores.left, stores.right, stores.mark
    places = (process.run(reserve_places, mark, 6, 2, HOUR) for process in (left, right))
    waits = sorted(wait for of_one in await asyncio.gather(*places) for wait in of_one)
    expected = [number // 2 for number in range(12)]
    require([round(wait / HOUR) for wait in waits] == expected, f"two places an hour, each taken once; waits: {waits}")
    for project, name in ((mark, "another rate"), (f"{mark}-other", "rate")):
        require(await left.reserve(project, name, 2, HOUR) == 0, "the first place of a rate of its own must be now")


async def check_113_the_claims_of_dead_processes_are_released_alone(stores: Stores) -> None:
    """By the process that claimed last."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.run(enqueue_many, mark, ["one", "two", "three"])
    live = await _claim_due(left, mark, lease=HOUR)
    dead = await _claim_due(right, mark, lease=HOUR)
    await _claim_due(right, mark)
    moved = await _take_over(left, mark)
    require(list(moved.owners) == [right.name, left.name], f"owners must tell who claimed it, in order: {moved.owners}")
    require(await left.release(f"{mark}-other", owners=[right.name]) == 0, "release must be of one project")
    require(await left.release(mark, owners=[f"nobody@{mark}"]) == 0, "release must be of these processes alone")
    require(await left.release(mark, owners=[right.name]) == 1, "release must return how many claims it freed")
    await refuses(right.commit(dead), StaleEpoch, "commit of a claim that was released")
    await left.commit(live)
    await left.commit(moved)
    require((await _claim_due(left, mark)).delivery_id == dead.delivery_id, "a released delivery must be due at once")
    require(await left.release(mark) == 1, "release without owners must free every claim of the project")


async def check_114_processes_are_there_until_they_are_forgotten(stores: Stores) -> None:
    """With what they told last, and the times of the store's clock."""
    left, right, mark = stores.left, stores.right, stores.mark
    names = [f"{mark}-{number}@{mark}" for number in (2, 1)]
    facts = {"name": "größe", "pid": 1, "projects": ["/p"], "bundles": {"b": "digest"}, "draining": False}
    for name in names:
        await left.present(name, {"pid": 0})
    await left.present(names[0], facts)
    found = [each for each in await right.processes() if each.host == mark]
    require([each.process for each in found] == names, f"processes must be listed in the order of their start: {found}")
    first = found[0]
    require(dict(first.facts) == facts, f"the facts must be those of the last sign: {first.facts}")
    require(first.started <= found[1].started <= first.seen, "started must stay, and seen be the last sign")
    await right.absent(names[0])
    await right.absent(names[0])
    left_over = [each.process for each in await left.processes() if each.host == mark]
    require(left_over == names[1:], f"absent must forget one process: {left_over}")
    await right.absent(names[1])


async def check_115_a_listener_hears_of_what_another_process_stores(stores: Stores) -> None:
    """A hint may be lost, so the check goes on storing until one comes."""
    left, right, mark = stores.left, stores.right, stores.mark
    for what in ("emit", "enqueue"):
        async with run_tasks() as group:
            hearing = group.create_task(left.run(hear_news, stores.patience / 2))
            while not hearing.done():
                if what == "emit":
                    await right.emit(SessionEvent(mark, {}))
                else:
                    await right.enqueue(mark, QUEUE, "trigger", event_of())
                await asyncio.wait({hearing}, timeout=10 * PAUSE)
        require(await hearing, f"listen must tell of an {what} of another process within {stores.patience / 2:g} s")


async def check_116_an_event_of_another_site_is_received_once(stores: Stores) -> None:
    """Of a store that receives: by one of two processes that get it at once, also after a purge of the log."""
    left, right, mark = stores.left, stores.right, stores.mark
    if "ReceivingStore" not in await left.run(kinds):
        return
    event = SessionEvent(mark, {"n": [1, "ü"]}, "s1", event_id=f"{mark}-event", cause="c", depth=2, sequence=10**12)
    both = await asyncio.gather(*(process.receive(event, mark) for process in (left, right)))
    require(both.count(None) == 1, f"one of two that receive the same event must get None: {both}")
    received = next(each for each in both if each is not None)
    found = [each for each in await left.find_events(event.event_id) if each.event_id == event.event_id]
    require(found == [received], f"a received event must be in the log with its id: {found}")
    sequence = (await left.emit(SessionEvent(mark, {}))).sequence
    require(received.sequence < sequence, "a received event must have the next sequence of this log")
    require(await right.receive(event, f"{mark}-other") is not None, "an event counts once for each origin")
    await left.purge(before=await left.now() + timedelta(days=1))
    require(await right.receive(event, mark) is None, "the id of a received event must be kept for 30 days")


SHARED_CHECKS = collect_checks(globals())
