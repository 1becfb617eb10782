"""Offer a collector, and the whole program in a folder with a bundle that exports to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.wire.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60
PROGRAM = [sys.executable, "-m", "amplifier_foundation"]

STALL = """
import asyncio, os
from pathlib import Path

class Stall:
    name, description = "stall", "Wait for the file `go`."
    input_schema = {"type": "object", "properties": {}}
    accesses = {}

    async def execute(self, input):
        folder = Path(os.environ["SITE"])
        (folder / "stalled.part").write_text(f"{os.getpid()} {os.getppid()}")
        (folder / "stalled.part").rename(folder / "stalled")
        while not (folder / "go").exists():
            await asyncio.sleep(0.02)
        return "went on"

async def mount(coordinator, config):
    await coordinator.mount("tools", Stall())
"""


class Site:
    """A folder with a bundle, and the program in it."""

    def __init__(self, folder: Path, endpoint: str, **sections: Any) -> None:
        self.folder = folder
        (folder / "work").mkdir(parents=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
            "AMPLIFIER_HOME": str(folder / "home"),
            "AMPLIFIER_TRUST": "1",
            "HOME": str(folder / "nobody"),
            "NO_COLOR": "1",
            "SITE": str(folder),
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "300",
        }
        (folder / "work" / "stall.py").write_text(STALL)
        session = {"orchestrator": "loop-basic", "context": "context-simple"}
        bundle = {"bundle": {"name": "site"}, "session": session, "hooks": [{"module": "hooks-otel"}], **sections}
        for hook in bundle["hooks"]:
            hook["config"] = {"flush_timeout": PATIENCE, **hook.get("config", {})}
        (folder / "work" / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\nWork.\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the program in a process group of its own; it is killed in the end."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder / "work",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        killer = threading.Timer(2 * PATIENCE, process.kill)
        killer.daemon = True
        killer.start()
        return process

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; it ends with one of these codes."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode in codes, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[str]]:
        """Have `amplifier up` run meanwhile; unless it is killed, it ends in order and says nothing."""
        with self.start("-q", "up", "bundle.md") as process:
            try:
                self.until(lambda: self.is_up(process))
                yield process
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    _, err = process.communicate(timeout=PATIENCE)
                    assert (process.returncode, err) == (128 + signal.SIGTERM, ""), err
            finally:
                process.kill()

    def is_up(self, process: subprocess.Popen[str]) -> bool:
        """Return whether the background sessions run, by `amplifier ps`."""
        assert process.poll() is None, process.communicate()
        told = self.run("ps", "--json", codes=(0, 1)).stdout  # 1 until the process in place of a killed one has begun
        states = [row["state"] for row in json.loads(told)["data"]["background_sessions"]]
        return bool(states) and set(states) == {"running"}

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a fact."""
        limit = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < limit, self.describe()
            time.sleep(0.02)

    def describe(self) -> str:
        """Return what the program says of its sessions."""
        return self.run("session", "tree", "--all").stdout + self.run("ps", codes=(0, 1)).stdout

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the program; a process of its own that stalls finds its program gone before it is killed, too."""
        session, zygote = map(int, (self.folder / "stalled").read_text().split())
        if session != process.pid:
            os.kill(zygote, signal.SIGSTOP)
        process.kill()
        process.communicate()
        if session != process.pid:
            self.until(lambda: _has_ended(session))
            os.kill(zygote, signal.SIGCONT)

    def go(self) -> None:
        """Let the sessions that stall go on."""
        (self.folder / "go").touch()

    def is_stalled(self) -> bool:
        """Return whether a session stalls."""
        return (self.folder / "stalled").exists()

    def sessions(self) -> dict[str, str]:
        """Return the statuses of all sessions by their ids."""
        rows = json.loads(self.run("session", "list", "--all", "--json").stdout)["data"]
        return {row["session_id"]: row["status"] for row in rows}


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(autouse=True)
def flush() -> Iterator[Callable[[], None]]:
    """Export what this process has; its pipelines are forgotten in the end."""
    from amplifier_hooks_otel import pipeline

    yield partial(pipeline.flush_all, PATIENCE)
    pipeline._pipelines.clear()
    for each in pipeline._all:
        each.close()  # its collector is gone
