"""Stop, start, restart, pause and resume: durable, visible, and said at a webhook."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from amplifier_core import SessionNotFound, StoreUnavailable
from amplifier_core.errors import SessionConflict
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import load_bundle, run_background
from amplifier_foundation.background.asking import ask
from amplifier_foundation.background.up import Control
from amplifier_foundation.sessions.lock import running_owner

from .bench import FedTrigger
from .test_faults import Faulty

OpenBench = Callable[..., Any]
Held = list[dict[str, Any]]

BUNDLE = """---
bundle: {name: family}
providers: [{module: provider-playbook, config: {otherwise: {say: fine}}}]
background_sessions:
  - {name: queue}
  - {name: later, start_on_parent_start: false}
---
"""


async def test_a_paused_one_accepts_events_and_handles_none_until_it_is_resumed(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        assert await bench.manager.change("queue", "paused") == session_id
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("accepted", count=3)
        await bench.clock.advance(60)
        assert (await bench.states(), bench.statuses()) == (["pending"] * 3, {"queue": "paused"})
        assert await bench.manager.is_idle()
        await bench.manager.change("queue", "running")
        await bench.until("completed", count=3, step=0.5)
        assert bench.statuses() == {"queue": "running"}


async def test_a_running_session_ends_in_a_pause(open_bench: OpenBench, held: Held) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("session")
        await bench.manager.change("queue", "paused")
        bench.held().go.set()
        await bench.until("completed")


async def test_a_stopped_one_stays_listed_and_stopped_over_restarts_and_edits(
    open_bench: OpenBench, make_bundle: Callable[..., Any]
) -> None:
    config = {"name": "queue", "triggers": [{"module": "trigger-fed"}]}
    async with open_bench() as bench:
        await bench.start()
        await bench.manager.change("queue", "stopped")
        row = bench.manager.get_status("queue")
        assert (row["status"], row["reason"]) == ("stopped", "start it with: amplifier start queue")
        await bench.manager.change("queue", "stopped")
        made = len(FedTrigger.made)
        edited = make_bundle("family", background_sessions=[{**config, "pool_size": 3}])
        await bench.manager.reconcile(edited)
        assert bench.statuses() == {"queue": "stopped"}
        assert FedTrigger.made[-1].queue.empty() and len(FedTrigger.made) > made
    async with open_bench() as bench:
        await bench.start()
        assert bench.statuses() == {"queue": "stopped"}
        await bench.manager.change("queue", "running")
        for made_here in FedTrigger.made:  # the last one may stand by for the stopped one, and is not watched
            made_here.feed(1)
        await bench.until("completed")
        assert bench.statuses() == {"queue": "running"}
    async with open_bench() as bench:
        await bench.start()
        assert bench.statuses() == {"queue": "running"}


async def test_a_pause_holds_over_a_restart_of_the_program(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        await bench.manager.change("queue", "paused")
    async with open_bench() as bench:
        await bench.start()
        assert bench.statuses() == {"queue": "paused"}


async def test_events_that_wait_for_a_stopped_one_are_handled_after_its_start(
    open_bench: OpenBench, held: Held
) -> None:
    async with open_bench(providers=held) as bench:
        await bench.start()
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("accepted", count=3)
        await bench.until("session")
        await bench.manager.change("queue", "stopped", grace=0)
        assert await bench.states() == ["pending"] * 3
        await bench.manager.change("queue", "running")
        await bench.until("session", count=2)
        bench.held().go.set()
        bench.told("session", "session")[-1].coordinator.get_capability("tests.held").go.set()
        await bench.until("completed", count=3, step=0.5)
        assert await bench.states() == ["done"] * 3


async def test_a_failed_one_works_again_after_a_restart(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first = await bench.start(restart_on_failure=False)
        bench.trigger.fail("gone")
        await bench.until("trigger_failed")
        assert bench.statuses() == {"queue": "failed"}
        second = await bench.manager.restart("queue")
        assert (bench.statuses(), first != second) == ({"queue": "running"}, True)
        bench.trigger.feed(1)
        await bench.until("completed")


async def test_a_restart_that_cannot_be_stored_stops_nothing(open_bench: OpenBench, store: DurableStore) -> None:
    full = Faulty(store, "save_trigger_state")
    full.well = True
    async with open_bench(full) as bench:
        session_id = await bench.start()
        full.well = False
        with pytest.raises(StoreUnavailable):
            await bench.manager.restart("queue")
        assert {key: row["status"] for key, row in bench.manager.get_status().items()} == {session_id: "running"}
        full.well = True
        bench.trigger.feed(1)
        await bench.until("completed")


async def test_an_unknown_name_changes_nothing(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        with pytest.raises(SessionNotFound):
            await bench.manager.change("nobody", "stopped")
        with pytest.raises(SessionNotFound):
            await bench.manager.restart("nobody")


async def test_what_ends_its_workers_does_not_end_a_background_session(
    open_bench: OpenBench, store: DurableStore
) -> None:
    class Broken(Faulty):
        async def _fail(self, *arguments: Any, **given: Any) -> Any:
            self.failures += 1
            raise ValueError("nobody expected that")

    broken = Broken(store, "claim")
    async with open_bench(broken) as bench:
        await bench.start()
        await bench.until("failed", count=3, step=1)
        line = Broken._fail.__code__.co_firstlineno + 2
        told = {"status": "degraded", "reason": f"ValueError: nobody expected that ({__file__}:{line})"}
        await bench.holds(lambda: told.items() <= bench.manager.get_status("queue").items())  # it may just try again
        broken.well, made = True, len(FedTrigger.made)
        await bench.holds(lambda: len(FedTrigger.made) > made, step=1)  # the old trigger is read no more
        assert bench.statuses() == {"queue": "running"}
        bench.trigger.feed(1)
        await bench.until("completed", step=1)


# from other processes


async def test_every_verb_is_asked_at_the_socket_and_holds_for_the_next_process(
    tmp_path: Path, home: Path, store: DurableStore, plugins: Plugins
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    bundle = await load_bundle(str(tmp_path / "bundle.md"))
    told: list[str] = []

    async def statuses(*asked: tuple[str, str]) -> dict[str, str]:
        async with run_background([bundle], store, plugins, control=Control(tell=told.append)) as [up]:
            owner = running_owner() or {}
            for verb, name in asked:
                await asyncio.to_thread(ask, owner, verb, name=name)
            with pytest.raises(SessionConflict, match="There are: later, queue"):
                await asyncio.to_thread(ask, owner, "pause", name="nobody")
            return {row["name"]: row["status"] for row in up.manager.get_status().values()}

    assert await statuses() == {"queue": "running"}
    assert await statuses(("start", "later"), ("pause", "queue")) == {"queue": "paused", "later": "running"}
    assert await statuses(("restart", "queue"), ("stop", "family/later")) == {"queue": "running", "later": "stopped"}
    assert await statuses() == {"queue": "running"}
    assert await statuses(("pause", "queue"), ("resume", "queue")) == {"queue": "running"}
    assert told[:2] == ["later is to start, as another process asks", "queue is to pause, as another process asks"]


def _post(url: str) -> tuple[int, str | None]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 0, timeout=120)
    try:
        connection.request("POST", address.path, b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Retry-After")
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_stopped_one_says_so_at_its_webhook(open_bench: OpenBench) -> None:
    port = _free_port()
    hook = [{"type": "webhook", "config": {"port": port}}]
    url = f"http://127.0.0.1:{port}/queue"
    async with open_bench() as bench:
        await bench.start(triggers=hook)
        assert await asyncio.to_thread(_post, url) == (202, None)
        await bench.manager.change("queue", "stopped")
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await asyncio.to_thread(_post, url)
                    break
                except OSError:  # it begins to listen again
                    await asyncio.sleep(0.01)
        assert answer == (503, "60")
        await bench.manager.change("queue", "running")
        assert await asyncio.to_thread(_post, url) == (202, None)
        await bench.until("completed", count=2, step=0.5)


async def test_a_full_disk_is_answered_503_at_a_webhook_that_stays_open(
    open_bench: OpenBench, store: DurableStore
) -> None:
    port = _free_port()
    faulty = Faulty(store, "enqueue", "save_trigger_state")
    faulty.well = True
    url = f"http://127.0.0.1:{port}/queue"
    async with open_bench(faulty) as bench:
        await bench.start(triggers=[{"type": "webhook", "config": {"port": port, "rate": None}}])
        faulty.well = False
        assert {await asyncio.to_thread(_post, url) for _ in range(40)} == {(503, "1")}
        assert bench.statuses() == {"queue": "degraded"}
        faulty.well = True
        assert await asyncio.to_thread(_post, url) == (202, None)
        await bench.holds(lambda: bench.statuses() == {"queue": "running"}, step=1)
        assert bench.kinds().count("armed") == 1


async def test_nothing_is_accepted_into_a_data_folder_that_is_gone(open_bench: OpenBench) -> None:
    def gone() -> None:
        raise StoreUnavailable("/data", "the data folder was removed")

    async with open_bench() as bench:
        await bench.start()
        bench.manager._engine.check_folder = gone
        with pytest.raises(StoreUnavailable, match="removed"):
            await bench.manager.fire("queue")
        assert await bench.deliveries() == []


async def test_a_problem_that_a_trigger_reports_is_in_the_status_until_it_is_over(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        session_id = await bench.start()
        bench.trigger.context.report("its folder does not exist; it is waited for")
        row = bench.manager.get_status(session_id)
        assert (row["status"], row["reason"]) == ("degraded", "its folder does not exist; it is waited for")
        bench.trigger.context.report(None)
        assert bench.statuses() == {"queue": "running"}
        bench.trigger.context.report("gone again")
        await bench.manager.restart("queue")
        assert bench.statuses() == {"queue": "running"}


async def test_a_missing_folder_of_a_file_watcher_is_in_the_status(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=[{"module": "trigger-file-watcher", "config": {"path": "in"}}])
        [row] = bench.manager.get_status().values()
        assert (row["status"], row["reason"]) == ("degraded", f"{tmp_path / 'in'} does not exist; it is waited for")
        (tmp_path / "in").mkdir()
        await bench.holds(lambda: bench.statuses() == {"queue": "running"}, step=1)
