"""Check the deliveries of a shared store: clocks, fences, bounds, hosts and rates, in several processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...documents import DocumentChange
from ...errors import SessionConflict, StaleEpoch
from ...events import SessionEvent
from ...shared_stores import Bounds
from ...storage import Admission, SessionRecord
from .deliveries import event_of
from .processes import run_together
from .rules import collect_checks, refuses, require
from .workloads import PAUSE, QUEUE, append_until_refused, claim_all, enqueue_many, reserve_places

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from ...storage import Delivery
    from .processes import StoreProcess, Stores

HOUR = 3600.0
SHORT = 0.5
"""Seconds of a lease whose end a check waits for."""


async def claim_now(process: StoreProcess, project: str, *, lease: float = 60, **more: Any) -> Delivery | None:
    """Claim at the store's own time."""
    given = {"owner": process.name, "lease": lease, "session_id": "session", **more}
    claimed: Delivery | None = await process.claim(project, QUEUE, **given)
    return claimed


async def claim_due(process: StoreProcess, project: str, **more: Any) -> Any:
    claimed = await claim_now(process, project, **more)
    require(claimed is not None, "claim must return the delivery that is due")
    return claimed


async def until(what: str, stores: Stores, attempt: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Return the first result of `attempt` that is not None."""
    with suppress(TimeoutError):
        async with asyncio.timeout(stores.patience):
            while True:
                result = await attempt(*arguments)
                if result is not None:
                    return result
                await asyncio.sleep(PAUSE)
    raise AssertionError(f"{what}; it did not within {stores.patience:g} s")


async def check_102_only_the_clock_of_the_store_decides_about_claims(stores: Stores) -> None:
    """Hosts whose clocks are an hour ahead or behind take nothing early, and hold nothing longer."""
    left = stores.left
    for shift in (HOUR, -HOUR):
        async with stores.another(shift=shift) as wrong:
            mark, what = stores.mark, f"a host whose clock is {shift / HOUR:+g} h wrong"
            await require_time(left, await wrong.now(), f"now() of {what}")
            await wrong.enqueue(mark, QUEUE, "trigger", event_of())
            await claim_due(left, mark)
            require(await claim_now(wrong, mark) is None, f"{what} must not take a claim whose lease goes on")
            await left.enqueue(mark, QUEUE, "trigger", event_of())
            claimed = await claim_due(wrong, mark)
            require(await claim_now(left, mark) is None, f"a claim of {what} must hold for its lease")
            await wrong.renew(claimed, lease=60)
            require(await claim_now(left, mark) is None, f"a claim that {what} renewed must hold for its lease")
            await require_time(left, claimed.created, f"the time of a delivery of {what}")
            await wrong.renew(claimed, lease=SHORT)
            await until(f"a claim of {what} must end with its lease", stores, claim_now, left, mark)


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
            await require_time(left, due, f"the time from which a delivery of {what} settles")
            await wrong.drop(stored.delivery_id, reason="not wanted")
            again = await wrong.redeliver(stored.delivery_id)
            await require_time(left, again.available_at, f"the time at which {what} makes a delivery due")
            await claim_due(left, mark)
            await wrong.present(wrong.name, {})
            [presence] = [each for each in await left.processes() if each.process == wrong.name]
            await require_time(left, presence.seen, f"the sign of {what}")
            await wrong.absent(wrong.name)


async def require_time(process: StoreProcess, time: datetime, what: str) -> None:
    away = abs((await process.now() - time).total_seconds())
    require(away < HOUR / 2, f"{what} must be that of the store's clock; it is {away:.0f} s away")


async def check_104_a_fence_checks_every_write(stores: Stores) -> None:
    """It lets the claim that holds write, and refuses it once another process has the delivery."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.create(SessionRecord(mark))
    await left.create(SessionRecord(f"{mark}-kept"))
    await left.enqueue(mark, QUEUE, "trigger", event_of())
    stale = await claim_due(left, mark)
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
    return await claim_due(process, project, now=await process.now() + timedelta(seconds=61))


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
            stale = await claim_due(zombie, mark)
            ended, taken = await run_together(
                zombie.fenced(stale).run(append_until_refused, mark), _freeze_and_take_over(zombie, left, mark, stores)
            )
            require(ended == "StaleEpoch", f"append after a takeover must raise StaleEpoch, not {ended}")
            last = (await left.read(mark))[-1]["content"]
            require(last == "the owner", f"a process whose claim is over must not write after the owner: {last!r}")
            await refuses(zombie.renew(stale, lease=60), StaleEpoch, "renew of a claim that was taken over")
            await left.commit(taken)


async def _freeze_and_take_over(zombie: StoreProcess, process: StoreProcess, mark: str, stores: Stores) -> Any:
    """Freeze a process while it appends; let another one claim its delivery and append, then thaw it."""
    await until("a claim that holds must append", stores, _has_messages, process, mark)
    zombie.freeze()
    try:
        later = await process.now() + timedelta(seconds=61)
        what = "claim must take over from a process that is frozen past its lease"
        taken = await until(what, stores, _claim_at, process, mark, later)  # it may hold a lock for a while
        at = (await process.get(mark)).message_count
        try:
            await process.fenced(taken).append(mark, [{"role": "user", "content": "the owner"}], at=at)
        except SessionConflict as error:
            require(False, f"append after a takeover must raise StaleEpoch: the frozen process has appended; {error}")
        return taken
    finally:
        zombie.thaw()


async def _claim_at(process: StoreProcess, project: str, now: datetime) -> Delivery | None:
    return await claim_now(process, project, now=now)


async def _has_messages(process: StoreProcess, session_id: str) -> bool | None:
    return (await process.get(session_id)).message_count > 0 or None


async def check_109_the_bound_of_running_claims_counts_all_processes(stores: Stores) -> None:
    """Of one queue; a claim whose lease has ended does not count."""
    left, right, mark = stores.left, stores.right, stores.mark
    await left.run(enqueue_many, mark, [f"e{number}" for number in range(20)])
    await left.run(enqueue_many, f"{mark}-other", ["another queue"])
    await claim_due(left, f"{mark}-other")
    bounds = Bounds(running=3)
    claims = (process.run(claim_all, mark, process.name, bounds=bounds) for process in (left, right))
    claimed = [each for of_one in await asyncio.gather(*claims) for each in of_one]
    require(len(claimed) == 3, f"at most 3 deliveries may be claimed at a time, and 3 must: {len(claimed)}")
    await left.commit(claimed[0])
    short = await claim_due(right, mark, bounds=bounds)
    require(await claim_now(left, mark, bounds=bounds) is None, "the bound must hold after a commit and a claim")
    later = await left.now() + timedelta(seconds=61)
    again = await claim_now(left, mark, bounds=bounds, now=later)
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
    require(await claim_now(right, mark, bounds=bounds) is None, "a claim that is committed must count")
    later = await left.now() + timedelta(seconds=HOUR + 1)
    require(
        await claim_now(right, mark, bounds=bounds, now=later) is not None, "a claim must not count after the period"
    )


async def check_111_a_delivery_for_one_host_is_claimed_there(stores: Stores) -> None:
    """Until another host adopts it; what is done stays as it was."""
    left, right, mark = stores.left, stores.right, stores.mark
    gone = f"{mark}-gone"
    for _ in range(3):
        await right.enqueue(mark, QUEUE, "trigger", event_of(), only_on=gone)
    stored = (await left.deliveries(project=mark))[0]
    require(stored.only_on == gone, f"a delivery must keep its host: {stored.only_on}")
    require(await claim_now(left, mark) is None, "a delivery for another host must not be claimed")
    await left.commit(await claim_due(left, mark, owner=f"process@{gone}"))
    require(await left.adopt(gone, "left") == 2, "adopt must return the number of deliveries that it gave")
    require(
        await claim_now(left, mark, owner=f"process@{gone}") is None, "an adopted delivery must be the new host's alone"
    )
    for _ in range(2):
        await claim_due(left, mark)
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
    live = await claim_due(left, mark, lease=HOUR)
    dead = await claim_due(right, mark, lease=HOUR)
    await claim_due(right, mark)
    moved = await _take_over(left, mark)
    require(list(moved.owners) == [right.name, left.name], f"owners must tell who claimed it, in order: {moved.owners}")
    require(await left.release(f"{mark}-other", owners=[right.name]) == 0, "release must be of one project")
    require(await left.release(mark, owners=[f"nobody@{mark}"]) == 0, "release must be of these processes alone")
    require(await left.release(mark, owners=[right.name]) == 1, "release must return how many claims it freed")
    await refuses(right.commit(dead), StaleEpoch, "commit of a claim that was released")
    await left.commit(live)
    await left.commit(moved)
    require((await claim_due(left, mark)).delivery_id == dead.delivery_id, "a released delivery must be due at once")
    require(await left.release(mark) == 1, "release without owners must free every claim of the project")


SHARED_DELIVERY_CHECKS = collect_checks(globals())
