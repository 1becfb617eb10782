"""Kill the program at named steps and at random moments, and compare what was accepted with what was done.

`KILLS` is how often, `make chaos` has it done 200 times; `SEED` chooses other moments.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import Delivery, SessionRecord, TriggerEvent, TriggerType, load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.history import final_answer, open_calls, text_of, turn_starts
from tests import forks

from .killing import STEPS, Chaos

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "4"))
SEED = int(os.environ.get("SEED", "20261120"))
SPAN = (0.4, 6.2)
"""Seconds after its start between which the demo is killed; its own pauses take more."""

MOMENTS = [random.Random(f"{SEED}-{number}").uniform(*SPAN) for number in range(max(1, KILLS // 20))]
ROUND = 18
"""Kills of one folder before what was accepted there is compared with what was done."""
POISON = """
import os, signal

class Poison:
    name = "poison"
    description = "Ends the process."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        os.kill(os.getpid(), signal.SIGKILL)

async def mount(coordinator, config):
    await coordinator.mount("tools", Poison())
"""
POISONED = """---
bundle: {name: all}
providers:
  - module: provider-playbook
    config:
      rules: [{when: {user: take poison}, call: {tool: poison, input: {}}}]
      otherwise: {say: Fine.}
tools: [{module: tool-poison, source: ./poison.py}]
background_sessions:
  - {name: poisoned, max_attempts: 2, instruction_template: take poison}
  - {name: neighbour, instruction_template: take water}
---
"""


@pytest.mark.parametrize("runner", ["inprocess", "subprocess"])
@pytest.mark.parametrize("number", range(-(-KILLS // ROUND)))
async def test_whatever_is_killed_when_everything_accepted_is_done_once(
    number: int, runner: str, tmp_path: Path
) -> None:
    chaos = Chaos(tmp_path / "project", f"{SEED}-{number}", runner)
    kills = min(ROUND, KILLS - number * ROUND)
    first = number * ROUND + random.Random(SEED).randrange(len(STEPS))
    for kill in range(first, first + kills):
        await chaos.kill(STEPS[kill % len(STEPS)])
    chaos.finish()
    done = await chaos.check()
    assert done >= len(chaos.watched) + len(chaos.posted) + len(chaos.offered)
    sys.stdout.write(f"{done} deliveries, {len(chaos.posted)} of them posted; {dict(sorted(chaos.ends.items()))}\n")


async def test_what_kills_its_process_is_set_aside_and_its_neighbour_goes_on(tmp_path: Path) -> None:
    (tmp_path / "poison.py").write_text(POISON)
    (tmp_path / "bundle.md").write_text(POISONED)
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    await _offer(tmp_path, "all/poisoned", "all/neighbour")
    ends = [
        forks.run(
            ["-q", "up", "--once"],
            cwd=tmp_path,
            env=environment,
            timeout=60,
        ).returncode
        for _ in range(3)
    ]
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 1]  # the poisoned event is given up
    ledger = await _ledger(tmp_path)
    fates = {each.queue: (each.state, each.reason) for each in ledger.deliveries.values()}
    assert fates["all/poisoned"] == ("dead", "the process ended 2 times while it was handled")
    assert fates["all/neighbour"] == ("done", None)


@pytest.mark.parametrize("moment", MOMENTS, ids=[f"{moment:.2f}s" for moment in MOMENTS])
async def test_a_kill_loses_nothing_and_repeats_nothing(moment: float, tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    _kill_demo_after(moment, tmp_path, environment)
    accepted = await _ledger(tmp_path)

    again = forks.run(["up", "--once", "demo"], cwd=tmp_path, env=environment, timeout=60)

    assert (again.returncode, again.stderr) == (0, "")
    done = await _ledger(tmp_path)
    assert set(accepted.deliveries) <= set(done.deliveries)
    done.check(tmp_path / "demo")


@pytest.mark.parametrize("moment", [0.15, 0.6, 2.0])
async def test_ctrl_c_at_any_moment_is_one_line_and_leaves_the_store_whole(moment: float, tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    with forks.Popen(
        ["demo", "demo"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    ends = [(130, b"\namplifier: interrupted\n"), (-signal.SIGINT, b"")]  # the second, while Python still starts
    assert (process.returncode, err) in ends
    ledger = await _ledger(tmp_path)
    assert not [each for each in ledger.deliveries.values() if each.state == "claimed"]
    assert not [each for each in ledger.records.values() if each.status == "running"]


def _kill_demo_after(seconds: float, folder: Path, environment: dict[str, str]) -> None:
    """Kill it so long after its start, but not before its folder is made: later on a busy machine."""
    with forks.Popen(
        ["demo", "demo"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        time.sleep(seconds)
        while not (folder / "demo" / "bundle.md").exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Ledger:
    """What the store says was accepted, and what was done about it."""

    def __init__(self, deliveries: list[Delivery], records: list[SessionRecord], events: list[Any]) -> None:
        self.deliveries = {delivery.delivery_id: delivery for delivery in deliveries}
        self.records = {record.session_id: record for record in records}
        self.events = events
        self.messages: dict[str, list[dict[str, Any]]] = {}

    def check(self, folder: Path) -> None:
        """Assert that every accepted event was handled by one session, once, and every emitted one was accepted."""
        handled = Counter(delivery.session_id for delivery in self.deliveries.values())
        assert all(delivery.state == "done" for delivery in self.deliveries.values())
        assert set(handled.values()) <= {1}
        for session_id in handled:
            assert session_id is not None
            self._check_session(session_id)
        self._check_events()
        self._check_files(folder)

    def _check_session(self, session_id: str) -> None:
        messages = self.messages[session_id]
        assert self.records[session_id].status == "completed"
        assert len(turn_starts(messages)) == 1
        assert final_answer(messages)
        assert open_calls(messages) == []

    def _check_events(self) -> None:
        emitted = [event for event in self.events if event.name == "review:completed"]
        reviewed = [each for each in self.deliveries.values() if each.queue == "demo/reviewer"]
        assert sorted(str(event.source_session_id) for event in emitted) == sorted(
            str(delivery.session_id) for delivery in reviewed
        )
        summarised = [each.event.cause for each in self.deliveries.values() if each.event.event_name]
        assert sorted(summarised, key=str) == sorted(event.event_id for event in emitted)

    def _check_files(self, folder: Path) -> None:
        """Assert that what lies in the folder was reviewed as it lies there."""
        program = folder / "app.py"
        if not program.exists():
            return
        try:
            compile(program.read_text(), "app.py", "exec")
            verdict = "app.py compiles."
        except SyntaxError as error:
            verdict = f"app.py, line {error.lineno}: {error.msg}"
        assert verdict in (folder / "REVIEW.md").read_text()
        assert verdict in (folder / "SUMMARY.md").read_text()
        last = max((each for each in self.deliveries.values() if each.event.file_path), key=lambda each: each.created)
        assert text_of(self.messages[str(last.session_id)][-1]) == verdict


async def _offer(folder: Path, *queues: str) -> None:
    store = open_inbox(load_plugins(environ={}), path=folder / "home" / "amplifier.db")
    for queue in queues:
        event = TriggerEvent(TriggerType.MANUAL, "trigger-manual")
        await store.enqueue(str(folder.resolve()), queue, f"{queue}/trigger-manual", event)
    await store.close()


async def _ledger(folder: Path) -> Ledger:
    path = folder / "home" / "amplifier.db"
    if not path.exists():
        return Ledger([], [], [])
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    store: DurableStore = open_inbox(load_plugins(environ={}), path=path)
    try:
        ledger = Ledger(
            await store.deliveries(limit=10_000), await store.sessions(), await store.events(since=0, limit=10_000)
        )
        for session_id in ledger.records:
            ledger.messages[session_id] = await store.read(session_id)
        return ledger
    finally:
        await store.close()
