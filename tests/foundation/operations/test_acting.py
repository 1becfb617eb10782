"""Acts of people are recorded with who did them, and fail no act that is done."""

from __future__ import annotations

import getpass
import sqlite3
from typing import TYPE_CHECKING

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.storage import SessionRecord
from amplifier_foundation.operations.acting import Actor, person_here, read_acts, record_act
from amplifier_foundation.operations.deliveries import drop_deliveries, find_deliveries, retry_deliveries
from amplifier_foundation.operations.sessions import (
    InvalidName,
    delete_sessions,
    find_session,
    fork_session,
    rename_session,
    split_point,
)

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import Delivery, DurableStore

ANN = Actor("ann", "dashboard")


async def dead_letter(store: DurableStore) -> Delivery:
    await store.enqueue("/p", "shop/orders", "shop/orders/t#1", TriggerEvent(TriggerType.MANUAL, "trigger-manual"))
    claimed = await store.claim("/p", "shop/orders", owner="me", lease=60, session_id="orders-1")
    assert claimed is not None
    await store.dead_letter(claimed, reason="no such tool")
    [letter] = await store.deliveries(state="dead")
    return letter


def test_a_person_has_the_login_name_of_the_process() -> None:
    assert person_here("editor") == Actor(getpass.getuser(), "editor")


async def test_who_retries_and_drops_a_delivery_is_found_by_its_id(store: DurableStore) -> None:
    letter = await dead_letter(store)
    [found] = await find_deliveries(store, [letter.delivery_id[:6]])
    due, uncertain, conflicts = await retry_deliveries(store, ANN, [found])
    assert ([each.state for each in due], uncertain, conflicts) == (["pending"], {}, [])
    bob = Actor("bob", "command line")
    async for _ in drop_deliveries(store, bob, due, "key sk-proj-0123456789abcdefghijABCDEFGHIJ is out"):
        pass

    dropped, retried = await read_acts(store, letter.delivery_id)
    assert [each.name for each in (dropped, retried)] == ["operator:acted"] * 2
    assert (retried.project, retried.source_session_id, retried.depth) == ("/p", None, 0)
    assert retried.data == {
        "act": "trigger.retry",
        "subject": letter.delivery_id,
        "by": "ann",
        "via": "dashboard",
        "queue": "shop/orders",
        "delivery_id": letter.delivery_id,
        "session_id": "orders-1",
    }
    assert (dropped.data["act"], dropped.data["by"], dropped.data["via"]) == ("trigger.drop", "bob", "command line")
    assert "0123456789" not in dropped.data["reason"]


async def test_what_happens_to_a_session_is_found_by_its_id(store: DurableStore) -> None:
    source = await store.create(SessionRecord("talk-1", project="/p"))
    await store.append("talk-1", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], at=0)
    point = split_point("talk-1@m1")
    forked = await fork_session(store, ANN, await find_session(store, "talk"), point, name="again")
    assert (forked.record.fork_of, forked.place.at) == ("talk-1", 1)
    await rename_session(store, ANN, source.session_id, " better ")
    with pytest.raises(InvalidName):
        await rename_session(store, ANN, source.session_id, "\n")
    await delete_sessions(store, ANN, [await store.get("talk-1")])

    acts = [(each.data["act"], each.data.get("name")) for each in await read_acts(store, "talk-1")]
    assert acts == [("session.delete", "better"), ("session.rename", "better")]
    [act] = await read_acts(store, forked.record.session_id)
    assert (act.data["act"], act.data["source"], act.data["at"]) == ("session.fork", "talk-1", 1)


async def test_the_newest_acts_come_first_when_there_are_many(store: DurableStore) -> None:
    for number in range(25):
        await record_act(store, ANN, "session.rename", "talk-1", number=number)
    numbers = [each.data["number"] for each in await read_acts(store, "talk-1")]
    assert numbers == [*range(24, 4, -1)]


async def test_an_act_that_cannot_be_recorded_is_done_and_said(
    store: DurableStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letter = await dead_letter(store)
    db = sqlite3.connect(tmp_path / "store" / "amplifier.db")
    db.execute("DROP TABLE events")
    db.commit()
    db.close()
    due, *_ = await retry_deliveries(store, ANN, [letter])
    assert [each.state for each in due] == ["pending"]
    assert f"trigger.retry of {letter.delivery_id} by ann is done, and could not be recorded" in caplog.text


def test_a_command_of_a_session_is_no_act_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_SESSION", "1")
    assert person_here("command line") == Actor(getpass.getuser(), "session")
