"""Check a `ReceivingStore`: events of other sites come into its log, each once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from ...events import SessionEvent
from ...shared_stores import ReceivingStore
from ...storage import DurableStore
from .rules import collect_checks, require

if TYPE_CHECKING:
    from typing import Any


class Receiving(DurableStore, ReceivingStore, Protocol):
    """A store that these checks are for."""


def _event(event_id: str, **more: Any) -> SessionEvent:
    return SessionEvent("work:done", {"n": [1, "ü"]}, "berlin.s1", event_id=event_id, project="site:berlin", **more)


async def check_83_an_event_of_another_site_is_logged_as_it_came(store: Receiving) -> None:
    """With its id, after the events that are there."""
    own = await store.emit(SessionEvent("own", {}))
    sent = _event("e1", cause="e0", depth=3)
    stored = await store.receive(sent, "berlin")
    require(stored is not None, "receive must return the event that it has stored")
    assert stored is not None
    require(replace(stored, sequence=None) == sent, f"receive must keep the event as it came: {stored}")
    require((stored.sequence or 0) > (own.sequence or 0), "its sequence must be above those before it")
    require(await store.events() == [own, stored], "events must return it, with those of this store")
    require(await store.last_sequence() == stored.sequence, "last_sequence must be that of the received event")


async def check_84_an_event_that_comes_twice_is_logged_once(store: Receiving) -> None:
    """Also when both come at once; the same id of another origin is another event."""
    first = [await store.receive(_event("e1"), "berlin"), await store.receive(_event("e1"), "berlin")]
    require([each is None for each in first] == [False, True], f"the second must be None: {first}")
    both = await asyncio.gather(*(store.receive(_event("e2"), "berlin") for _ in range(5)))
    require(sum(each is not None for each in both) == 1, f"one of five at once must be stored: {both}")
    require(await store.receive(_event("e1"), "oslo") is not None, "another origin has ids of its own")
    require([each.event_id for each in await store.events()] == ["e1", "e2", "e1"], "each must be in the log once")


async def check_85_an_id_that_came_stays_known_after_a_purge(store: Receiving) -> None:
    """For at least 30 days: a broker may send an event again."""
    await store.receive(_event("e1", timestamp=datetime(2020, 1, 1, tzinfo=UTC)), "berlin")
    purged = await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    require(purged.events == 1, f"purge must forget the event: {purged}")
    require(await store.receive(_event("e1"), "berlin") is None, "purge must keep the id of an event that came today")


RECEIVING_CHECKS = collect_checks(globals())
