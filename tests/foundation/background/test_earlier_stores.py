"""Tests of stores that were written for an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from amplifier_core import Delivery
from amplifier_core.storage import DurableStore


class Earlier:
    """A store whose `nack` takes no `now`."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def nack(
        self,
        delivery: Delivery,
        *,
        reason: str,
        available_at: datetime,
        counted: bool = True,
        session: Mapping[str, Any] | None = None,
    ) -> None:
        await self._store.nack(delivery, reason=reason, available_at=available_at, counted=counted, session=session)


async def test_an_event_is_given_back_to_a_store_that_takes_its_own_time(
    open_bench: Callable[..., Any], store: DurableStore, flaky: Callable[..., Any]
) -> None:
    async with open_bench(Earlier(store), providers=flaky({"kind": "RuntimeError"}, "fine")) as bench:
        await bench.start(max_attempts=3)
        bench.trigger.feed(1)
        await bench.until("completed", step=1)
    [delivery] = await store.deliveries()
    assert (delivery.state, delivery.attempts) == ("done", 2)
