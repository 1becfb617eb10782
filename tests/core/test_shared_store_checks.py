"""Check that a store shared by processes keeps the contract, and break each rule to see its check fail."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Admission, Delivery
from amplifier_core.testing import MemoryStore, SharedMemoryStore, check_shared_store
from amplifier_core.testing.store_checks.processes import Stores
from amplifier_core.testing.store_checks.shared import SHARED_CHECKS, TWO_PROCESS_CHECKS
from tests.core.served_store import ServedStore, StoreServer, serve_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.shared_stores import Lease
    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

pytestmark = pytest.mark.slow

CHECKS = {int(check.__name__.split("_")[1]): check for check in TWO_PROCESS_CHECKS + SHARED_CHECKS}
SIZE = 80


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with serve_store(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture(scope="module")
def stores(server: StoreServer) -> Iterator[Stores]:
    stores = Stores("tests.core.served_store:open_served", {"path": server.server_address}, size=SIZE)
    yield stores
    asyncio.run(stores.close())


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.__name__)
async def test_a_served_store_keeps_the_contract(
    check: Callable[[Stores], Awaitable[None]], server: StoreServer, stores: Stores
) -> None:
    server.store = SharedMemoryStore()
    await check(stores)


class ForgetsStates(SharedMemoryStore):
    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        return {}


class ShowsCommitsLate(SharedMemoryStore):
    """The cursor of a bare sequence: a commit takes its numbers at once, and is seen when others have gone on."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[list[SessionEvent]] = []

    async def commit(self, delivery: Delivery, *, emits: Sequence[SessionEvent] = (), **more: Any) -> Any:
        await super().commit(delivery, **more)
        first, self._sequence = self._sequence + 1, self._sequence + len(emits)
        self._late.append([replace(event, sequence=number) for number, event in enumerate(emits, first)])
        return self._late[-1]

    async def emit(self, event: SessionEvent) -> SessionEvent:
        logged = await super().emit(event)
        while len(self._late) > 3 or (self._late and event.event_id.endswith("last")):
            self._log = sorted([*self._log, *self._late.pop(0)], key=lambda each: each.sequence or 0)
        return logged


class ClaimsTwice(SharedMemoryStore):
    def _is_due(self, kept: Any, project: str, queue: str, now: datetime) -> bool:
        again = kept.delivery.project == project and kept.delivery.epoch == 1
        return again or super()._is_due(kept, project, queue, now)


class Admits(SharedMemoryStore):
    changes: dict[str, Any] = {}  # noqa: RUF012

    async def enqueue(self, *event: Any, admission: Admission | None = None, **more: Any) -> Delivery | None:
        changed = admission and replace(admission, **self.changes)
        return await super().enqueue(*event, admission=changed, **more)


class KnowsNoKeys(Admits):
    changes = {"key": None}  # noqa: RUF012


class QueuesWhatWouldReplace(Admits):
    changes = {"overlap": "queue"}  # noqa: RUF012


class KnowsNoDedupeKeys(SharedMemoryStore):
    async def enqueue(self, project: str, queue: str, trigger: str, event: Any, **more: Any) -> Delivery | None:
        return await super().enqueue(project, queue, trigger, replace(event, dedupe_key=None), **more)


class ForgetsTheEpoch(SharedMemoryStore):
    def _require_claim(self, delivery: Delivery) -> Any:
        return self._deliveries[delivery.delivery_id]


class AppendsAnywhere(SharedMemoryStore):
    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        return await super().append(session_id, messages, at=len(self.read_sync(session_id)))


class ForksOneMessageLess(SharedMemoryStore):
    async def create(self, record: SessionRecord) -> SessionRecord:
        if record.fork_of:
            record = replace(record, fork_at=max(0, len(self.read_sync(record.fork_of)) - 1))
        return await super().create(record)


class NeverEndsALease(SharedMemoryStore):
    async def claim(self, *queue: Any, lease: float, **more: Any) -> Delivery | None:
        return await super().claim(*queue, lease=lease * 1000, **more)


class LosesEvents(SharedMemoryStore):
    async def emit(self, event: SessionEvent) -> SessionEvent:
        logged = await super().emit(event)
        if (logged.sequence or 0) % 7 == 0:
            self._log.pop()
        return logged


class ChangesAnyVersion(SharedMemoryStore):
    async def write_documents(self, changes: Any, **more: Any) -> Any:
        places = [(each.project, each.collection, each.key) for each in changes]
        kept = [self._documents.get(place) for place in places]
        versions = [document.version if document else 0 for document in kept]
        newest = [replace(each, version=at) for each, at in zip(changes, versions, strict=True)]
        return await super().write_documents(newest, **more)


class ReturnsPlainDeliveries(SharedMemoryStore):
    async def enqueue(self, *event: Any, **more: Any) -> Delivery | None:
        return await MemoryStore.enqueue(self, *event, **more)


def unfenced(method: str) -> Callable[[], SharedMemoryStore]:
    kind = type("Unfenced", (SharedMemoryStore,), {method: getattr(MemoryStore, method), "__slots__": ()})
    return kind


class HasTwoLeaders(SharedMemoryStore):
    async def lead(self, name: str, *, owner: str, lease: float) -> Lease | None:
        return await super().lead(f"{name}{owner}", owner=owner, lease=lease)


class KeepsTheEpochOfALease(SharedMemoryStore):
    async def lead(self, *name: Any, **more: Any) -> Lease | None:
        lease = await super().lead(*name, **more)
        if lease is not None:
            self._leases[lease.name] = replace(lease, epoch=1)
        return lease and self._leases[lease.name]


class ListsEndedLeases(SharedMemoryStore):
    async def leases(self) -> list[Lease]:
        return [lease for _, lease in sorted(self._leases.items())]


class AsksNoLeader(SharedMemoryStore):
    async def enqueue(self, *event: Any, leader: Lease | None = None, **more: Any) -> Delivery | None:
        return await super().enqueue(*event, **more)


class StoresTheStateOfALateLeader(SharedMemoryStore):
    async def enqueue(self, project: str, queue: str, trigger: str, event: Any, **more: Any) -> Delivery | None:
        await self.save_trigger_state(project, trigger, event.state or {})
        return await super().enqueue(project, queue, trigger, event, **more)


class KnowsNoBounds(SharedMemoryStore):
    async def claim(self, *queue: Any, bounds: Any = None, **more: Any) -> Delivery | None:
        return await super().claim(*queue, **more)


class CountsDeadClaims(SharedMemoryStore):
    def _is_bounded(self, bounds: Any, project: str, queue: str, now: datetime) -> bool:
        return super()._is_bounded(bounds, project, queue, now - timedelta(days=1))


class CountsUnfinishedClaims(SharedMemoryStore):
    async def commit(self, *delivery: Any, **more: Any) -> Any:
        self._begun.clear()
        return await super().commit(*delivery, **more)


class KnowsNoHosts(SharedMemoryStore):
    async def claim(self, *queue: Any, **more: Any) -> Delivery | None:
        for kept in self._deliveries.values():
            kept.delivery = replace(kept.delivery, only_on=None)  # type: ignore[call-arg]
        return await super().claim(*queue, **more)


class AdoptsNothing(SharedMemoryStore):
    async def adopt(self, host: str, by: str) -> int:
        return 0


class HasNoPlaces(SharedMemoryStore):
    async def reserve(self, project: str, name: str, limit: int, period: float) -> float:
        return 0.0


class ReleasesEverything(SharedMemoryStore):
    async def release(self, project: str, *, owners: Any = None) -> int:
        return await super().release(project)


class ReleasesAnyOwner(SharedMemoryStore):
    async def release(self, project: str, *, owners: Any = None) -> int:
        of_project = [kept for kept in self._claimed() if kept.delivery.project == project]
        return self._release(kept for kept in of_project if {*(owners or ())} & {*_owners(kept)})


def _owners(kept: Any) -> Sequence[str]:
    owners: Sequence[str] = kept.delivery.owners
    return owners


class StartsAtEverySign(SharedMemoryStore):
    async def present(self, process: str, facts: Mapping[str, Any]) -> None:
        await self.absent(process)
        await super().present(process, facts)


class TellsNobody(SharedMemoryStore):
    def _tell(self) -> None:
        pass


class ReceivesAnyNumber(SharedMemoryStore):
    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        self._received.clear()
        return await super().receive(event, origin)


class ForgetsWhatWasPurged(SharedMemoryStore):
    async def purge(self, **before: Any) -> Any:
        self._received.clear()
        return await super().purge(**before)


BROKEN: list[tuple[int, Callable[[], SharedMemoryStore], str]] = [
    (82, ForgetsStates, "a state must be that of the last event of all"),
    (83, ShowsCommitsLate, r"events\(since=…\) never returned"),
    (84, ClaimsTwice, "a delivery must be claimed once"),
    (85, KnowsNoKeys, "with the same key None was at work"),
    (86, KnowsNoDedupeKeys, "each dedupe_key must be new once"),
    (87, ForgetsTheEpoch, "renew of a claim that another process took over must raise StaleEpoch"),
    (88, AppendsAnywhere, "one must raise SessionConflict"),
    (89, ForksOneMessageLess, "a fork must see whole appends"),
    (90, NeverEndsALease, "the claim of a killed process must end with its lease"),
    (91, LosesEvents, "are gone after a kill"),
    (92, QueuesWhatWouldReplace, "the new delivery must be due"),
    (93, ChangesAnyVersion, "two processes counted to|of two new documents with one key"),
    (101, ReturnsPlainDeliveries, "must return SharedDelivery"),
    *(
        (104, unfenced(method), f"{method} fenced by a claim that was taken over must raise StaleEpoch")
        for method in ("create", "append", "update", "delete", "emit", "write_documents", "save_trigger_state")
    ),
    (105, unfenced("append"), "append after a takeover must raise StaleEpoch"),
    (106, HasTwoLeaders, "each name must have one leader"),
    (106, KeepsTheEpochOfALease, "a resigned name must be free, its epoch new"),
    (107, ListsEndedLeases, "leases must not return one that has ended"),
    (108, AsksNoLeader, "enqueue by a leader that has resigned must raise StaleEpoch"),
    (108, StoresTheStateOfALateLeader, "a stale leader must not change a trigger's state"),
    (109, KnowsNoBounds, "at most 3 deliveries may be claimed at a time"),
    (109, CountsDeadClaims, "a claim whose lease has ended must not count"),
    (110, KnowsNoBounds, "at most 4 claims may be made within the period"),
    (110, CountsUnfinishedClaims, "a claim that is committed must count"),
    (111, KnowsNoHosts, "a delivery for another host must not be claimed"),
    (111, AdoptsNothing, "adopt must return the number of deliveries"),
    (112, HasNoPlaces, "two places an hour, each taken once"),
    (113, ReleasesEverything, "release must be of these processes alone"),
    (113, ReleasesAnyOwner, "release must return how many claims it freed"),
    (114, StartsAtEverySign, "processes must be listed in the order of their start"),
    (116, ReceivesAnyNumber, "one of two that receive the same event must get None"),
    (116, ForgetsWhatWasPurged, "must be kept for 30 days"),
]


@pytest.mark.parametrize(("number", "broken", "rule"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
async def test_a_shared_store_that_breaks_a_rule_is_told_which(
    number: int, broken: Callable[[], SharedMemoryStore], rule: str, server: StoreServer, stores: Stores
) -> None:
    server.store = broken()
    with pytest.raises(AssertionError, match=rule):
        await CHECKS[number](stores)


class LooksAtItsOwnClock(ServedStore):
    """Give the time of the host for that of the store."""

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method in ("claim", "enqueue"):
            named.setdefault("now", datetime.now(UTC))
        return super().call(method, *arguments, **named)


def open_with_own_clock(config: Mapping[str, Any]) -> LooksAtItsOwnClock:
    return LooksAtItsOwnClock(config["path"])


@pytest.mark.parametrize(
    ("number", "rule"),
    [(102, r"whose clock is \+1 h wrong must not take a claim"), (103, r"a delivery of a host whose clock is \+1 h")],
)
async def test_a_store_that_looks_at_the_clock_of_its_host_is_found(
    number: int, rule: str, server: StoreServer
) -> None:
    server.store = SharedMemoryStore()
    async with Stores(f"{__name__}:open_with_own_clock", {"path": server.server_address}) as stores:
        with pytest.raises(AssertionError, match=rule):
            await CHECKS[number](stores)


async def test_a_store_that_tells_nobody_is_found(
    server: StoreServer, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.store = TellsNobody()
    monkeypatch.setattr(stores, "patience", 1)
    with pytest.raises(AssertionError, match=r"listen must tell of an emit of another process within 0\.5 s"):
        await CHECKS[115](stores)


async def test_the_broken_rule_is_told_with_the_name_of_its_check(server: StoreServer) -> None:
    server.store = ForgetsStates()
    with pytest.raises(AssertionError, match="check_82_a_process_reads_at_once.*: a state must be that of the last"):
        await check_shared_store("tests.core.served_store:open_served", {"path": server.server_address})


def open_nothing(config: Mapping[str, Any]) -> None:
    raise StoreUnavailable("the server", "it does not answer")


async def test_a_store_that_cannot_be_opened_says_why() -> None:
    with pytest.raises(StoreUnavailable, match="it does not answer"):
        await check_shared_store(f"{__name__}:open_nothing", {})
    with pytest.raises(AttributeError, match="open_nobody"):
        await check_shared_store(f"{__name__}:open_nobody", {})


def open_slow(config: Mapping[str, Any]) -> Any:
    class Slow:
        async def last_sequence(self) -> None:
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    return Slow()


def test_a_process_with_a_store_ends_with_the_process_that_started_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "amplifier_core.testing.store_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps({"factory": f"{__name__}:open_slow", "config": {}}), file=process.stdin, flush=True)
        assert process.stdout.readline()
        waiting: dict[str, Any] = {"call": "last_sequence", "arguments": [], "named": {}, "fence": None}
        print(json.dumps(waiting), file=process.stdin, flush=True)
        process.stdin.close()
        assert process.wait(60) == 0


async def test_a_store_that_hangs_is_killed_and_named() -> None:
    async with Stores(f"{__name__}:open_slow", {}, patience=1) as stores:
        with pytest.raises(AssertionError, match="last_sequence must return; it did not within 1 s"):
            await stores.left.last_sequence()
