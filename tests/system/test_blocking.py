"""The whole program with a tool that blocks its thread, or does not end: its session waits, and nothing else does."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke

pytestmark = pytest.mark.slow

PATIENCE = 60

TOOL = """
import asyncio
from pathlib import Path

def wait_for_a_writer():
    Path("begun").touch()
    with open("gate") as gate:  # until somebody opens it for writing
        return gate.read()

async def retry():
    while Path("retrying").exists():
        try:
            await asyncio.sleep(0.05)
        except:
            pass
        Path("begun").touch()
    return "free"

class Block:
    name, description = "block", "Blocks its thread."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        if Path("retrying").exists():
            return await retry()
        if not Path("gate").exists():
            return "free"
        return await asyncio.to_thread(wait_for_a_writer) if Path("aside").exists() else wait_for_a_writer()

async def mount(coordinator, config):
    await coordinator.mount("tools", Block())
"""

BUNDLE = """---
bundle: {name: blocking}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "block"}, call: {tool: block, input: {}}}
        - {when: {tool: block}, say: "It was {result}."}
      otherwise: {say: fine}
tools: [{module: block, source: ./block.py}]
background_sessions:
  - {name: stuck, triggers: [{module: trigger-manual}], instruction: block, timeout: TIMEOUT, retry: {delay: 0.01}}
  - {name: hook, triggers: [{module: trigger-webhook, config: {port: 0}}]}
  - {name: tick, triggers: [{module: trigger-timer, config: {interval: 250ms}}]}
---
"""


PROGRAM = """
from amplifier_foundation.__main__ import main
from amplifier_foundation.background.manager import BackgroundSessionManager
from amplifier_foundation.spawning import own_loops
own_loops.CLEANUP = BackgroundSessionManager.change.__kwdefaults__["grace"] = 1.0
main()
"""
"""The whole program; a session has one second to end, instead of ten."""


class Up:
    """`amplifier up` in a process of its own, with a session whose tool blocks, and the lines of its log."""

    def __init__(self, folder: Path, timeout: str = "null") -> None:
        (folder / "bundle.md").write_text(BUNDLE.replace("TIMEOUT", timeout))
        (folder / "block.py").write_text(TOOL)
        os.mkfifo(folder / "gate")
        self.folder, self.log = folder, folder.parent / "log"
        with self.log.open("wb") as log:
            program = [sys.executable, "-c", PROGRAM, "up"]
            self.process = subprocess.Popen(program, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        self.until("Watching")

    def until(self, pattern: str, after: int = 0) -> re.Match[str]:
        """Return the match of a pattern in the log, once there is one."""
        self.holds(lambda: re.search(pattern, self.log.read_text()[after:]) is not None)
        found = re.search(pattern, self.log.read_text()[after:])
        assert found is not None
        return found

    def holds(self, condition: Callable[[], bool]) -> None:
        """Return once it holds."""
        ends = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < ends, self.log.read_text()
            time.sleep(0.02)

    def block(self) -> None:
        """Fire the event whose tool blocks, and return once it does."""
        assert invoke(["trigger", "fire", "stuck"]) == exits.OK
        self.holds((self.folder / "begun").exists)

    def free(self) -> None:
        """Let the blocked tool return, and later calls not block."""
        gate = (self.folder / "gate").rename(self.folder / "open")
        gate.write_text("freed")

    def post(self) -> int:
        port = int(self.until(r"listens at http://127\.0\.0\.1:(\d+)/hook")[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/hook", b"{}", {"Content-Type": "application/json"})
        try:
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def start(home: Path, project: Path) -> Iterator[Callable[..., Up]]:
    """Start the program in the project's folder."""
    started: list[Up] = []

    def up(timeout: str = "null") -> Up:
        started.append(Up(project, timeout))
        return started[-1]

    yield up
    for each in started:
        each.process.kill()
        each.process.wait()


def printed(*arguments: str) -> str:
    with redirect_stdout(StringIO()) as out:
        assert invoke(arguments) == exits.OK
    return out.getvalue()


def in_store(home: Path, ask: Callable[[DurableStore], Any]) -> Any:
    async def answer() -> Any:
        store: DurableStore = open_inbox(load_plugins(environ={}), path=home / "amplifier.db")
        try:
            return await ask(store)
        finally:
            await store.close()

    return asyncio.run(answer())


def test_a_blocking_tool_holds_up_its_session_alone(start: Callable[..., Up]) -> None:
    up = start()
    up.block()
    blocked_at = len(up.log.read_text())
    assert up.post() == 202
    up.until(r"hook +[0-9a-f]{4} fine", blocked_at)
    up.until(r"tick +[0-9a-f]{4} fine", blocked_at)
    rows = json.loads(printed("ps", "--json"))["data"]["background_sessions"]
    assert {row["background_session"]: row["state"] for row in rows}["stuck"] == "running"
    up.until(r"session stuck-\S+ has blocked its thread for \d+ s: wait_for_a_writer")
    up.holds(lambda: "has blocked its thread" in printed("logs", "stuck"))
    [line] = [line for line in printed("logs").splitlines() if "has blocked its thread" in line]
    assert re.search(r"stuck +session stuck-\S+ has blocked .*execute \(\S+block\.py:\d+\) < ", line)
    up.free()
    up.until(r"stuck +[0-9a-f]{4} It was freed\.")


def test_the_time_limit_of_a_blocked_session_holds_and_its_thread_writes_nothing_later(
    start: Callable[..., Up], home: Path
) -> None:
    up = start("1")
    up.block()
    gate = (up.folder / "gate").rename(up.folder / "open")  # the next attempt finds no gate
    up.until(r"session stuck-\S+ is given up, its thread hangs: wait_for_a_writer")
    up.until(r"↻ stuck +[0-9a-f]{4} session 'stuck-[0-9a-f]+' was stopped after")
    up.until(r"stuck +[0-9a-f]{4} It was free\.")
    gate.write_text("freed")  # the thread of the first attempt returns

    async def of_stuck(store: DurableStore) -> tuple[Any, list[Any]]:
        [delivery] = [each for each in await store.deliveries() if each.queue == "blocking/stuck"]
        return delivery, await store.read(delivery.session_id or "")

    delivery, history = in_store(home, of_stuck)
    assert (delivery.state, delivery.attempts) == ("done", 2)
    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert up.post() == 202


@pytest.mark.parametrize("aside", [False, True], ids=["in the session's thread", "in a thread of its own"])
def test_a_blocked_session_does_not_delay_a_stop(aside: bool, start: Callable[..., Up], home: Path) -> None:
    if aside:
        (home.parent / "project" / "aside").touch()
    up = start()
    up.block()
    assert invoke(["stop", "--all", "--timeout", "0"]) == exits.OK
    up.process.wait(PATIENCE)

    async def state_of_stuck(store: DurableStore) -> tuple[str, str | None]:
        [delivery] = [each for each in await store.deliveries() if each.queue == "blocking/stuck"]
        return delivery.state, delivery.reason

    assert in_store(home, state_of_stuck) == ("pending", "interrupted")


def test_the_time_limit_of_a_session_that_ignores_its_cancellation_holds(start: Callable[..., Up]) -> None:
    up = start("1")
    (up.folder / "retrying").touch()
    up.block()
    up.until(r"session stuck-\S+ is given up, it ignores its cancellation: sleep \(.* < retry \(\S+block\.py:\d+\) < ")
    (up.folder / "gate").rename(up.folder / "open")
    (up.folder / "retrying").unlink()
    up.until(r"↻ stuck +[0-9a-f]{4} session 'stuck-[0-9a-f]+' was stopped after")
    up.until(r"stuck +[0-9a-f]{4} It was free\.")


def test_a_session_that_ignores_its_cancellation_can_be_stopped(start: Callable[..., Up]) -> None:
    up = start()
    (up.folder / "retrying").touch()
    up.block()
    assert invoke(["stop", "stuck"]) == exits.OK
    up.until(r"session stuck-\S+ is given up, it ignores its cancellation: ")
    assert invoke(["stop", "--all"]) == exits.OK
    up.process.wait(PATIENCE)
