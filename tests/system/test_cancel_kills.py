"""A process that is killed while it cancels a turn: the turn is cancelled, or it runs again; never both."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from amplifier_core import Delivery, load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from tests import forks

TOOL = """
import asyncio, os, signal
from pathlib import Path

from amplifier_foundation.background.asking import ask
from amplifier_foundation.sessions.lock import running_owner
from amplifier_storage_sqlite.store import SqliteStore


def kill_at(step, when):
    method = getattr(SqliteStore, step)

    async def killing(*arguments, **given):
        if when == "after":
            await method(*arguments, **given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(SqliteStore, step, killing)


class Work:
    name, description, input_schema = "work", "Works.", {"type": "object", "properties": {}}

    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def execute(self, input):
        with Path("runs.txt").open("a") as runs:
            runs.write("run\\n")
        kill = Path("kill")
        if kill.exists():
            kill_at(*kill.read_text().split())
            kill.unlink()
            session = {"session_id": self.coordinator.session_id, "by": "ann"}
            asking = asyncio.create_task(asyncio.to_thread(ask, running_owner(), "cancel", patience=30, **session))
            while not self.coordinator.cancellation.is_cancelled:
                await asyncio.sleep(0.005)
        return "worked"


async def mount(coordinator, config):
    await coordinator.mount("tools", Work(coordinator))
"""
BUNDLE = """---
bundle: {name: yard}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules: [{when: {user: "begin"}, call: {tool: work, input: {}}}]
      otherwise: {say: "Done."}
tools: [{module: work, source: ./work.py}]
background_sessions:
  - {name: work, triggers: [{module: trigger-manual}], instruction: "begin"}
---
"""


def read_end() -> tuple[Delivery, SessionRecord]:
    """Return the delivery and its session, as they are stored."""

    async def read() -> tuple[Delivery, SessionRecord]:
        store = open_inbox(load_plugins(environ={}))
        try:
            [delivery] = await store.deliveries()
            return delivery, await store.get(str(delivery.session_id))
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("step", "found", "state"),
    [
        ("dead_letter before", "claimed", "done"),
        ("dead_letter after", "dead", "skipped"),
        ("drop before", "dead", "skipped"),
        ("drop after", "skipped", "skipped"),
    ],
)
def test_a_killed_process_leaves_a_running_turn_or_a_cancelled_one(
    step: str, found: str, state: str, project: Path, home: Path
) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    (project / "work.py").write_text(TOOL)
    (project / "kill").write_text(step)
    assert invoke(["trigger", "fire", "work"]) == exits.OK
    assert forks.run(("up", "--once"), cwd=project).returncode == -signal.SIGKILL
    assert read_end()[0].state == found
    assert forks.run(("up", "--once"), cwd=project).returncode == exits.OK
    delivery, session = read_end()
    is_done = state == "done"
    assert (delivery.state, delivery.reason) == (state, None if is_done else "cancelled by ann")
    assert (session.status, session.error) == (("completed", None) if is_done else ("cancelled", "cancelled by ann"))
    assert (project / "runs.txt").read_text() == "run\n"
