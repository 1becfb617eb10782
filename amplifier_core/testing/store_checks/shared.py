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
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...errors import StaleEpoch
from ...events import SessionEvent
from .deliveries import event_of
from .processes import Stores, run_together
from .rules import collect_checks, refuses, require
from .shared_deliveries import SHARED_DELIVERY_CHECKS, SHORT, until
from .two_processes import TWO_PROCESS_CHECKS
from .workloads import PAUSE, QUEUE, hear_news, kinds, lead_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ...shared_stores import Lease
    from .processes import StoreProcess

__all__ = ["SHARED_CHECKS", "TWO_PROCESS_CHECKS", "Stores", "check_shared_store"]


async def check_shared_store(
    factory: str, config: Mapping[str, Any], *, shared: bool = True, size: int = 400, patience: float = 60.0
) -> None:
    """Run every check on the store that `factory`, `module:function`, opens with `config`. Raises `AssertionError`.

    `shared=False` leaves out the checks of a `SharedStore`. `size` is the number of events, deliveries and messages
    where many are written; `patience` the most seconds for one step.
    """
    async with Stores(factory, config, size=size, patience=patience) as stores:
        for check in TWO_PROCESS_CHECKS + (SHARED_CHECKS if shared else ()):
            try:
                await check(stores)
            except AssertionError as broken:
                raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken


async def check_101_a_shared_store_has_all_methods(stores: Stores) -> None:
    """Those of a `DurableStore`, too; its deliveries are shared ones."""
    found = await stores.left.run(kinds)
    require({"DurableStore", "SharedStore"} <= set(found), f"a shared store must be a SharedStore, not only {found}")
    mark = stores.mark
    enqueued = await stores.left.enqueue(mark, QUEUE, "trigger", event_of())
    kind = type(enqueued).__name__
    require(kind == "SharedDelivery", f"a shared store must return SharedDelivery, not {kind}")
    require((list(enqueued.owners), enqueued.only_on) == ([], None), "a new delivery must have no owners and any host")


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
    await until("a lease must end", stores, _has_ended, right, first.until)
    require(mark not in [each.name for each in await right.leases()], "leases must not return one that has ended")
    again = await left.lead(mark, owner=left.name, lease=SHORT)
    require(again is not None and again.epoch == first.epoch, f"an own lease that nobody took must go on: {again}")
    what = "lead must give a name whose lease has ended"
    second = await until(what, stores, _lead, right, mark)
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
    await until("a lease must end", stores, _has_ended, right, short.until)
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
    await asyncio.gather(left.now(), right.now())  # both are there before one listens
    for what in ("emit", "enqueue"):
        heard = asyncio.Event()

        async def hear(heard: asyncio.Event = heard) -> bool:
            told: bool = await left.run(hear_news, stores.patience / 2)
            heard.set()
            return told

        async def store(what: str = what, heard: asyncio.Event = heard) -> None:
            while not heard.is_set():
                given = [SessionEvent(mark, {})] if what == "emit" else [mark, QUEUE, "trigger", event_of()]
                await getattr(right, what)(*given)
                await asyncio.sleep(10 * PAUSE)

        [told, _] = await run_together(hear(), store())
        require(told, f"listen must tell of an {what} of another process within {stores.patience / 2:g} s")


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


SHARED_CHECKS = collect_checks(globals()) + SHARED_DELIVERY_CHECKS
