"""Check that a store names the queues with work."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

from ...storage import Admission
from .deliveries import LATER, claim_from, enqueue_to
from .rules import collect_checks, require

if TYPE_CHECKING:
    from ...due_queues import DueQueues
    from ...storage import DurableStore


async def check_141_a_store_names_the_queues_with_work(store: DurableStore) -> None:
    """Those with a delivery to claim now: none is left out, and what rests for the time being is not named."""
    due_queues = cast("DueQueues", store).due_queues
    require(await due_queues("/p", now=LATER) == set(), "no queue of an empty store has work")
    for queue in ("a", "b", "c"):
        await enqueue_to(store, queue=queue)
        await enqueue_to(store, queue=queue, admission=Admission("key"))
    require(await due_queues("/p", now=LATER) == {"a", "b", "c"}, "every queue with work must be named")
    require(await due_queues("/q", now=LATER) == set(), "it must be its project's alone")
    soon = LATER + timedelta(seconds=30)
    for _ in range(2):
        await store.nack(await claim_from(store, queue="a"), reason="r", available_at=soon)
        await store.commit(await claim_from(store, queue="b"))
        await claim_from(store, queue="c")
    require(await due_queues("/p", now=LATER) == set(), "what is postponed, done or claimed is no work")
    require(await due_queues("/p", now=soon) == {"a"}, "what has come due must be named")
    late = LATER + timedelta(seconds=61)
    require(await due_queues("/p", now=late) == {"a", "c"}, "a claim whose lease is over must be named")


QUEUE_CHECKS = collect_checks(globals())
