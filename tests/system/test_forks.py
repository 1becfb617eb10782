"""The whole program with tools that fork: what belongs to the process alone does not outlive it in its forks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import owner_lock

pytestmark = pytest.mark.slow

PATIENCE = 60

TOOL = """
import asyncio
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

def fork():
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return f"with a fork that ended with {os.waitstatus_to_exitcode(status)}"
    if Path("leave").exists():
        sys.exit(3)
    return "a fork"

class Fork:
    name, description = "fork", "Forks."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        if Path("aside").exists():
            return await asyncio.to_thread(fork)
        if not Path("pool").exists():
            return fork()
        self.pool = ProcessPoolExecutor(1, get_context("fork"))
        Path("worker").write_text(str(self.pool.submit(os.getpid).result()))
        await asyncio.sleep(3600)

async def mount(coordinator, config):
    await coordinator.mount("tools", Fork())
"""

BUNDLE = """---
bundle: {name: forking}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "fork"}, call: {tool: fork, input: {}}}
        - {when: {tool: fork}, say: "It was {result}."}
      otherwise: {say: fine}
tools: [{module: fork, source: ./fork.py}]
background_sessions:
  - {name: forks, triggers: [{module: trigger-manual}], instruction: fork}
  - {name: hook, triggers: [{module: trigger-webhook, config: {port: PORT}}]}
---
"""


class Up:
    """`amplifier up` in a process of its own, and the lines of its log."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder.parent / name
        with self.log.open("wb") as log:
            program = [sys.executable, "-m", "amplifier_foundation", "up"]
            self.process = subprocess.Popen(program, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

    def until(self, pattern: str) -> re.Match[str]:
        """Return the match of a pattern in the log, once there is one."""
        holds(lambda: re.search(pattern, self.log.read_text()) is not None, self.log)
        found = re.search(pattern, self.log.read_text())
        assert found is not None
        return found


def holds(condition: Callable[[], object], log: Path) -> None:
    """Return once it holds."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.02)


@pytest.fixture
def folder(project: Path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (project / "bundle.md").write_text(BUNDLE.replace("PORT", str(port)))
    (project / "fork.py").write_text(TOOL)
    return project


@pytest.fixture
def start(home: Path, folder: Path) -> Iterator[Callable[[], Up]]:
    started: list[Up] = []

    def up() -> Up:
        started.append(Up(folder, f"log{len(started)}"))
        started[-1].until("Watching")
        return started[-1]

    yield up
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def worker(folder: Path) -> Iterator[Callable[[Up], int]]:
    """Fire the event whose tool starts a worker process, and return its number."""
    pids: list[int] = []

    def begin(up: Up) -> int:
        (folder / "pool").touch()
        assert invoke(["trigger", "fire", "forks"]) == exits.OK
        holds(lambda: (folder / "worker").exists() and (folder / "worker").read_text(), up.log)
        pids.append(int((folder / "worker").read_text()))
        return pids[-1]

    yield begin
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_worker_process_that_outlives_the_program_keeps_neither_its_locks_nor_its_ports(
    folder: Path, start: Callable[[], Up], worker: Callable[[Up], int]
) -> None:
    first = start()
    pid = worker(first)
    first.process.kill()
    first.process.wait()
    os.kill(pid, 0)  # the worker lives
    (folder / "pool").unlink()
    second = start()
    second.until(r"forks +[0-9a-f]{4} It was ")
    port = re.search(r"port: (\d+)", (folder / "bundle.md").read_text())
    assert port is not None
    socket.create_connection(("127.0.0.1", int(port[1])), PATIENCE).close()
    assert "cannot listen" not in second.log.read_text()


def test_a_signal_to_a_worker_process_is_its_own(start: Callable[[], Up], worker: Callable[[Up], int]) -> None:
    up = start()
    pid = worker(up)
    os.kill(pid, signal.SIGTERM)
    holds(lambda: _state_of(pid) in ("Z", ""), up.log)
    assert invoke(["stop", "--all", "--timeout", "0"]) == exits.OK
    assert up.process.wait(PATIENCE) == exits.TERMINATED
    assert up.log.read_text().count("Stopping") == 1


@pytest.mark.parametrize(("where", "code"), [("", 70), ("aside", 70), ("leave", 3)])
def test_a_fork_that_a_tool_leaves_behind_ends_and_the_program_goes_on(
    where: str, code: int, folder: Path, start: Callable[[], Up]
) -> None:
    if where:
        (folder / where).touch()
    up = start()
    assert invoke(["trigger", "fire", "forks"]) == exits.OK
    up.until(rf"forks +[0-9a-f]{{4}} It was with a fork that ended with {code}\.")
    assert up.log.read_text().count("✓ forks") == 1


def test_a_lock_without_its_process_is_named(home: Path, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    facts = {"projects": [str(project)], "bundles": ["q1"], "pid": ended.pid, "socket": "none"}
    with owner_lock(facts):
        held = f"process {ended.pid} is gone from here, but its lock is held: .* fuser "
        with pytest.raises(SessionConflict, match=held):
            owner_lock(facts).__enter__()
        assert invoke(["stop", "--all"]) == exits.CONFLICT
    told = capfd.readouterr().err
    assert f"process {ended.pid} is gone from here, but its lock is held" in told
    assert "kill -9" not in told


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
