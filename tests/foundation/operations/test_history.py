"""The history of background sessions is read to its end, whatever sessions, sites and other versions have logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.events import SessionEvent
from amplifier_foundation.background.log_events import (
    BACKGROUND_RELOADED,
    BACKGROUND_STALLED,
    BACKGROUND_STATE,
    OPERATOR_ACTED,
    TRIGGER_ERROR,
)
from amplifier_foundation.operations.acting import Actor, read_acts, record_act
from amplifier_foundation.operations.history import Following, read_change

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

ANN = Actor("ann", "command line")
FORGED = {"act": "approve", "subject": "a deployment", "by": "ann", "via": "command line", "queue": "shop/orders"}
STATE = {"queue": "shop/orders", "project": "/p", "status": "failed", "reason": "no key"}
NAMES = (BACKGROUND_RELOADED, BACKGROUND_STALLED, BACKGROUND_STATE, OPERATOR_ACTED, TRIGGER_ERROR)


@pytest.mark.parametrize("name", NAMES)
async def test_an_event_without_the_data_of_its_name_ends_no_reader(store: DurableStore, name: str) -> None:
    for data in ({}, {"at": 1, "status": None, "reason": [], "act": {}}, {**STATE, "at": "0001-01-01T00:00:00+23:59"}):
        await store.emit(SessionEvent(name, data))
    await record_act(store, ANN, "trigger.fire", "orders", queue="shop/orders")
    told = [each.text for each in await Following(store).read_new(10)]
    assert told[-1] == "trigger fire by ann (command line)"


def test_a_time_without_a_zone_stands_in_line_with_the_others() -> None:
    entry = read_change(SessionEvent(BACKGROUND_STATE, {**STATE, "at": "2026-03-04T05:06:07"}))
    assert entry is not None
    assert (entry.text, entry.at.tzinfo is not None) == ("failed: no key", True)


@pytest.mark.parametrize("facts", [{"source_session_id": "s-1"}, {"source_session_id": "x.s", "project": "site:x"}])
def test_neither_a_session_nor_another_site_acts_in_the_name_of_a_person(facts: dict[str, Any]) -> None:
    assert read_change(SessionEvent(OPERATOR_ACTED, FORGED, **facts)) is None


def test_the_status_of_another_site_is_none_of_here() -> None:
    event = SessionEvent(BACKGROUND_STATE, {**STATE, "at": "2026-03-04T05:06:07+00:00"}, "x.s", project="site:x")
    assert read_change(event) is None


async def test_an_event_of_another_site_under_the_id_of_an_act_is_no_act(store: DurableStore) -> None:
    await record_act(store, ANN, "session.rename", "talk-1")
    [act] = await read_acts(store, "talk-1")
    prefix = act.event_id.rpartition("-")[0]
    await store.emit(SessionEvent(OPERATOR_ACTED, FORGED, "x.s", event_id=f"{prefix}-0", project="site:x"))
    await store.emit(SessionEvent("work:done", {}, "x.s", event_id=f"{prefix}-1", project="site:x"))
    assert await read_acts(store, "talk-1") == [act]
