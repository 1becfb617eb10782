"""A worker renews its claims one after the other: each in time, none that is over."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.errors import StaleEpoch, StoreUnavailable
from amplifier_core.storage import Delivery
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.background.renewing import Renewing
from amplifier_foundation.background.state import Running


class Renewals(MemoryStore):
    """A store that tells when it renewed what, and waits before it if it shall."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.renewed: list[tuple[float, str]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def renew(self, delivery: Delivery, **how: Any) -> None:
        await self.may_go_on.wait()
        await super().renew(delivery, **how)
        self.renewed.append((self.clock.monotonic(), str(delivery.session_id)))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(clock: VirtualClock) -> Renewals:
    return Renewals(clock)


@pytest.fixture
def renewing(clock: VirtualClock, store: Renewals) -> Renewing:
    engine: Any = SimpleNamespace(clock=clock, store=store, lease=60.0, member=None)
    return Renewing(engine)


async def claim(store: Renewals, session_id: str) -> Delivery:
    event, now = TriggerEvent(TriggerType.MANUAL, "manual"), store.clock.now()
    await store.enqueue("/project", "queue", "queue/manual", event, now=now)
    claimed = await store.claim("/project", "queue", owner="me", lease=60, session_id=session_id, now=now)
    assert claimed is not None
    return claimed


def work() -> asyncio.Task[Any]:
    return asyncio.create_task(asyncio.sleep(3600))


async def test_each_claim_is_renewed_a_third_of_its_lease_after_its_begin(
    clock: VirtualClock, store: Renewals, renewing: Renewing
) -> None:
    attempt = work()
    first, second = [Running(await claim(store, each), attempt) for each in ("first", "second")]
    renewing.begin(first, clock.monotonic())
    await clock.advance(25)
    renewing.end()
    await store.commit(first.delivery)
    renewing.begin(second, clock.monotonic())
    await clock.advance(45)
    renewing.end()
    assert store.renewed == [(20, "first"), (45, "second"), (65, "second")]
    assert (first.lost, second.lost) == (None, None)
    await renewing.stop()
    assert clock.sleeping == 0
    attempt.cancel()


async def test_a_claim_that_somebody_else_took_cancels_its_attempt(
    clock: VirtualClock, store: Renewals, renewing: Renewing
) -> None:
    attempt = work()
    taken = Running(await claim(store, "session"), attempt)
    renewing.begin(taken, clock.monotonic())
    await store.nack(taken.delivery, reason="", available_at=clock.now())
    await clock.advance(20)
    await asyncio.wait({attempt}, timeout=60)
    assert attempt.cancelled()
    assert isinstance(taken.lost, StaleEpoch)
    going_on = work()
    following = Running(await claim(store, "session"), going_on)
    renewing.begin(following, clock.monotonic())
    await clock.advance(20)
    assert (store.renewed, following.lost) == ([(40, "session")], None)
    await renewing.stop()
    going_on.cancel()


async def test_a_renewal_of_a_claim_that_is_over_meanwhile_disturbs_no_later_one(
    clock: VirtualClock, store: Renewals, renewing: Renewing
) -> None:
    attempt = work()
    first, second = [Running(await claim(store, each), attempt) for each in ("first", "second")]
    renewing.begin(first, clock.monotonic())
    store.may_go_on.clear()
    await clock.advance(20)
    renewing.end()
    await store.commit(first.delivery)
    renewing.begin(second, clock.monotonic())
    store.may_go_on.set()
    await clock.advance(20)
    assert store.renewed == [(40, "second")]
    assert (second.lost, attempt.done()) == (None, False)
    await renewing.stop()
    attempt.cancel()


async def test_a_claim_whose_attempt_has_ended_is_let_go_on_a_store_that_fails_at_once(
    clock: VirtualClock, store: Renewals
) -> None:
    tried = []

    async def renew(delivery: Delivery, **how: Any) -> None:
        tried.append(delivery)
        if len(tried) > 3:
            raise asyncio.CancelledError  # instead of a loop without an end, in which nothing else runs
        raise StoreUnavailable("postgres", "nobody answers")

    member: Any = SimpleNamespace(clock=clock, store=SimpleNamespace(renew=renew), lease=60.0, claims_for=45.0)
    engine: Any = SimpleNamespace(clock=clock, store=store, lease=60.0, member=member)
    attempt = work()
    attempt.cancel()
    await asyncio.wait({attempt})
    renewing, ended = Renewing(engine), Running(await claim(store, "session"), attempt)
    renewing.begin(ended, clock.monotonic())
    await clock.advance(60)
    assert len(tried) == 3
    assert ended.lost is None
    await renewing.stop()
