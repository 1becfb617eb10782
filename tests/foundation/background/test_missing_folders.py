"""Events wait while the folder of their project is gone, or its permissions cannot be read: no session runs then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.permissions.policy import PermissionsError
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.background.giving_back import is_postponed, make_due, waits_with_queue
from amplifier_foundation.background.undeclared import find_stranded
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.deliveries import retry_deliveries
from amplifier_foundation.operations.explaining import describe_state
from amplifier_foundation.operations.overview import read_postponed
from tests.dead_mounts import unreachable

OpenBench = Callable[..., Any]
ANN = Actor("ann", "command line")


async def test_events_wait_for_their_folder_and_lose_no_attempt(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    parent.coordinator.register_capability("session.working_dir", str(folder))
    async with open_bench(providers=flaky("fine")) as bench:
        session_id = await bench.start(max_attempts=1)
        folder.rename(elsewhere)
        bench.trigger.feed(1)
        await bench.until("postponed")
        (waiting,) = await bench.deliveries()
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert f"the folder {folder} is gone" in waiting.reason
        row = bench.manager.get_status(session_id)
        assert (row["status"], "is gone" in row["reason"]) == ("degraded", True)
        elsewhere.rename(folder)
        await bench.until("completed", step=1.0)
        assert bench.statuses() == {"queue": "running"}


async def test_events_wait_for_a_folder_that_cannot_be_reached_and_lose_no_attempt(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    parent.coordinator.register_capability("session.working_dir", str(folder))
    async with open_bench(providers=flaky("fine")) as bench:
        session_id = await bench.start(max_attempts=1)
        with unreachable(folder):
            bench.trigger.feed(1)
            await bench.until("postponed")
            (waiting,) = await bench.deliveries()
            assert (waiting.state, waiting.attempts) == ("pending", 0)
            assert f"the folder {folder} cannot be reached (File name too long)" in waiting.reason
            assert bench.manager.get_status(session_id)["status"] == "degraded"
            [stranded] = await find_stranded(bench.store)
            assert stranded.fact.endswith(f"of {folder}, a folder that cannot be reached (File name too long)")
        await bench.until("completed", step=1.0)
        assert bench.statuses() == {"queue": "running"}


async def test_events_wait_while_the_settings_cannot_be_read(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path
) -> None:
    closed = [PermissionError(13, "Permission denied", "/p/settings.yaml")]

    def read_again() -> None:
        if closed:
            raise closed[0]

    parent.coordinator.guard(PermissionGate(Policy(refresh=read_again), tmp_path))
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start(max_attempts=1)
        bench.trigger.feed(1)
        await bench.until("postponed")
        (waiting,) = await bench.deliveries()
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert "the permissions cannot be read: [Errno 13] Permission denied: '/p/settings.yaml'" in waiting.reason
        closed.clear()
        await bench.until("completed", step=1.0)


async def test_events_that_wait_for_their_folder_are_handled_in_their_order_and_the_cause_is_told_once(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    parent.coordinator.register_capability("session.working_dir", str(folder))
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start(max_attempts=1)
        folder.rename(elsewhere)
        for n in (1, 2, 3):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n)
        await bench.until("postponed")
        await bench.clock.advance(300)
        assert await bench.manager.is_idle()  # what waits for a person ends no `up --once`
        waiting = (await bench.deliveries())[0]
        row = await read_postponed(bench.store, waiting.project, waiting.queue)
        cause = f"the folder {folder} is gone. Bring it back: its events wait for it, and for no other place"
        assert row == {"postponed": 3, "postponed_until": None, "postponed_reason": cause}
        assert describe_state(waiting, str) == f"waiting: postponed with its queue: {cause}"
        assert (await retry_deliveries(bench.store, ANN, [waiting])).conflicts == []
        elsewhere.rename(folder)
        bench.trigger.feed(4)
        await bench.until("completed", count=4, step=1.0)
        assert bench.handled() == [1, 2, 3, 4]
        assert bench.told("postponed", "until") == [None]
        assert {each.attempts for each in await bench.deliveries()} == {1}


@pytest.mark.parametrize("pool", [1, 2])
async def test_permissions_that_cannot_be_read_show_in_the_status_and_are_looked_at_once_in_a_while(
    open_bench: OpenBench, flaky: Any, parent: AmplifierSession, tmp_path: Path, pool: int
) -> None:
    looks, broken = count(1), [True]

    def read_again() -> None:
        if broken:
            raise PermissionsError(f"look {next(looks)} of the file")  # another text each time

    parent.coordinator.guard(PermissionGate(Policy(refresh=read_again), tmp_path))
    async with open_bench(providers=flaky("fine")) as bench:
        session_id = await bench.start(max_attempts=1, pool_size=pool)
        for n in (1, 2, 3):
            bench.trigger.feed(n)
            await bench.until("accepted", count=n)
        await bench.until("postponed")
        row = bench.manager.get_status(session_id)
        assert (row["status"], "permissions cannot be read: look" in row["reason"]) == ("degraded", True)
        await bench.clock.advance(10)
        before = next(looks)
        for _ in range(300):  # the clock stands still; a worker without a pause has its turns at the store meanwhile
            await bench.deliveries()
        assert next(looks) - before < 10
        broken.clear()
        await bench.until("completed", count=3, step=1)
        assert bench.handled() == [1, 2, 3]
        assert bench.statuses() == {"queue": "running"}


async def test_an_event_that_is_made_due_waits_for_its_budget_and_not_with_its_queue(
    open_bench: OpenBench, flaky: Any
) -> None:
    async with open_bench(providers=flaky("fine")) as bench:
        await bench.start()
        event = TriggerEvent(TriggerType.MANUAL, "manual")
        place = ("/nowhere", "b/a")
        await bench.store.enqueue(*place, "b/a/manual", event)
        claimed = await bench.store.claim(*place, owner="o", lease=60.0, session_id="a-1")
        due = claimed.created + timedelta(days=1)
        await bench.store.nack(claimed, reason="postponed: its budget is spent", available_at=due, counted=False)
        await make_due(bench.store, claimed.delivery_id)
        (waiting,) = await bench.store.deliveries(queue="b/a")
        assert (is_postponed(waiting), waits_with_queue(waiting)) == (True, False)
