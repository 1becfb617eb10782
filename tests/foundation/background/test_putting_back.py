"""A delivery that the store cannot take back is tried by the clock alone, at the cost of no attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_foundation.background.lost_claims import LostClaims

from .test_faults import Faulty

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

OpenBench = Callable[..., Any]


class RefusesOne(Faulty):
    """A store that does not take how the first event ended, while it shall not."""

    def __init__(self, store: DurableStore, error: Exception) -> None:
        super().__init__(store)
        self.error, self.claims = error, 0

    async def claim(self, *arguments: Any, **given: Any) -> Any:
        claimed = await self._store.claim(*arguments, **given)
        self.claims += claimed is not None
        return claimed

    def _check(self, delivery: Any) -> None:
        if delivery.event.data["n"] == 1 and not self.well:
            self.failures += 1
            raise self.error

    async def commit(self, delivery: Any, *arguments: Any, **given: Any) -> Any:
        self._check(delivery)
        return await self._store.commit(delivery, *arguments, **given)

    async def dead_letter(self, delivery: Any, *arguments: Any, **given: Any) -> Any:
        self._check(delivery)
        return await self._store.dead_letter(delivery, *arguments, **given)

    async def nack(self, delivery: Any, **how: Any) -> Any:
        self._check(delivery)
        return await self._store.nack(delivery, **how)


@pytest.fixture
def refusing(store: DurableStore) -> RefusesOne:
    return RefusesOne(store, RuntimeError("this row cannot be written"))


async def test_a_busy_queue_costs_a_delivery_none_of_its_tries(
    open_bench: OpenBench, flaky: Any, refusing: RefusesOne
) -> None:
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        await bench.start(max_attempts=1, pool_size=2)
        bench.trigger.feed(1)
        await bench.until("store_failed")
        bench.trigger.feed(2)
        await bench.clock.until_sleeping()
        await bench.clock.advance(1.0)
        await bench.until("completed")
        await bench.holds(lambda: refusing.failures == 3)  # its end, the end of its failure, and the first try
        for n in range(3, 12):
            bench.trigger.feed(n)
            await bench.until("completed", count=n - 1)
        assert refusing.failures == 3
        refusing.well = True
        await bench.until("completed", count=11, step=0.5)
        assert {(each.state, each.attempts) for each in await bench.deliveries()} == {("done", 1)}


async def test_a_delivery_that_cannot_be_given_back_is_left_to_its_lease_and_then_costs_no_attempt_and_no_session(
    open_bench: OpenBench, flaky: Any, refusing: RefusesOne, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        bench.manager._engine.lease = 600.0
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        left = "cannot be given back, and waits for the end of its lease: RuntimeError: this row"
        await bench.holds(lambda: left in caplog.text, step=1.0)
        bench.trigger.feed(2)
        await bench.until("completed", step=1.0)
        assert bench.told("completed", "delivery")[0].event.data["n"] == 2
        await bench.holds(lambda: caplog.text.count(left) == 3, step=10.0)
        assert bench.handled() == [1, 2]
        refusing.well = True
        await bench.holds(lambda: refusing.claims == 6, step=10.0)
        await bench.until("completed", count=2)
        assert (await bench.states(), bench.handled()) == (["done", "done"], [1, 2, 1])
        assert "dead" not in bench.kinds()


async def test_a_new_start_of_a_background_session_pays_no_session_again_for_what_was_left(
    open_bench: OpenBench, flaky: Any, refusing: RefusesOne, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        bench.manager._engine.lease = 600.0
        session_id = await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        left = "cannot be given back, and waits for the end of its lease"
        await bench.holds(lambda: left in caplog.text, step=1.0)
        await bench.manager.restart(bench.manager.get_status(session_id)["name"])
        await bench.holds(lambda: caplog.text.count(left) == 2, step=10.0)
        assert bench.handled() == [1]
        refusing.well = True
        await bench.until("completed", step=10.0)
        assert bench.handled() == [1, 1]


async def test_a_claim_that_is_given_back_as_it_is_cancelled_is_not_lost(
    open_bench: OpenBench, flaky: Any, refusing: RefusesOne
) -> None:
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("store_failed")
        refusing.well = True
        bench.manager.interrupt()
        while await bench.states() != ["pending"]:
            await asyncio.sleep(0.001)
        assert [each.attempts for each in await bench.deliveries()] == [0]
        assert not bench.manager._engine.lost.counts


async def test_a_delivery_that_was_left_has_all_its_attempts_when_it_is_delivered_again_and_no_more(
    open_bench: OpenBench, flaky: Any, refusing: RefusesOne, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [{"kind": "RuntimeError"}] * 8
    async with open_bench(refusing, providers=flaky(*failures)) as bench:
        bench.manager._engine.lease = 600.0
        await bench.start(max_attempts=2)
        bench.trigger.feed(1)
        left = "cannot be given back, and waits for the end of its lease"
        await bench.holds(lambda: caplog.text.count(left) == 2, step=10.0)
        refusing.well = True
        await bench.until("dead", step=10.0)
        before = len(bench.handled())
        [delivery] = await bench.deliveries()
        await bench.store.redeliver(delivery.delivery_id)
        await bench.until("dead", count=2, step=10.0)
        assert len(bench.handled()) - before == 2


async def test_a_claim_that_was_left_is_noticed_by_the_next_one_alone(
    open_bench: OpenBench, flaky: Any, store: DurableStore
) -> None:
    async with open_bench(store, providers=flaky("fine")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")
        [delivery] = await bench.deliveries()
    lost, first = LostClaims(), replace(delivery, epoch=3)
    lost.leave(first, "no room")
    assert lost.take_left(replace(first, epoch=5)) is None  # another host had it meanwhile
    lost.leave(first, "no room")
    assert (lost.take_left(replace(first, epoch=4)), lost.take_left(replace(first, epoch=4))) == ("no room", None)


class RefusesItsFirstClaim(RefusesOne):
    """A store that takes how the first event ended from a later claim alone."""

    def _check(self, delivery: Any) -> None:
        if delivery.epoch == 1:
            super()._check(delivery)


async def test_a_claim_that_another_worker_takes_over_before_it_can_be_given_back_costs_no_attempt(
    open_bench: OpenBench, flaky: Any, store: DurableStore
) -> None:
    refusing = RefusesItsFirstClaim(store, StoreUnavailable("/store", "its row is locked"))
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        bench.manager._engine.lease = 60.0
        await bench.start(max_attempts=1, pool_size=2)
        bench.trigger.feed(1)
        await bench.holds(lambda: refusing.claims == 2, step=1.0)
        await bench.until("completed", "dead")
        assert await bench.states() == ["done"]


async def test_a_stop_waits_for_no_try(open_bench: OpenBench, flaky: Any, refusing: RefusesOne) -> None:
    async with open_bench(refusing, providers=flaky("fine")) as bench:
        session_id = await bench.start()
        bench.trigger.feed(1)
        await bench.until("store_failed")
        assert await bench.manager.stop(session_id, grace=1e6)  # the clock of the test stands still
