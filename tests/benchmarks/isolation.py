"""Measure sessions in processes of their own: from start to result, their memory, and what the parent keeps of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

from amplifier_core.hook_data import SpawnRequest
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.runner import SubprocessRunner

from .measure import Row, awaited, called, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FORKS = 3.5  # goal: times a bare fork and its result
TYPICAL, WORST = 5e-3, 15e-3  # goal: seconds of the median, and of the 99th percentile
PRIVATE = 3 * 2**20  # goal: bytes that a session's process has for itself
KEPT = 5 * 2**20  # goal: bytes that the parent is larger after them
SESSIONS, LARGE = 50, 100 * 2**20
PAUSE = 0.05  # seconds between two sessions: the next process is prepared meanwhile

PLAN = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"otherwise": {"say": "Yes."}}}],
}
TOOL = """
from amplifier_core import ToolResult

class Use:
    name, description, input_schema = "use", "Uses memory.", {"type": "object", "properties": {}}
    def __init__(self, config):
        self.size = config.get("size", 0)
    async def execute(self, arguments):
        held = bytearray(self.size)
        held[::4096] = b"x" * len(held[::4096])
        rows = [line.split() for line in open("/proc/self/smaps_rollup")]
        private = sum(int(row[1]) for row in rows if row[0] in ("Private_Dirty:", "Private_Clean:"))
        return ToolResult(success=True, output=str(private * 1024))

async def mount(coordinator, config):
    await coordinator.mount("tools", Use(config))
"""


async def rows() -> AsyncIterator[Row]:
    """Run trivial sessions one after another, beside forks and Pythons; then look at their memory."""
    runner = SubprocessRunner()
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        forked, python = await in_turns(called(_fork, 20), called(_start_python, 2), rounds=15)
        taken = [await _run_one(runner, folder) for _ in range(220)][20:]
        yield Row(
            "a session in a process of its own / os.fork and its result", median(taken), forked, at_most_ratio=FORKS
        )
        yield timed("  its median", median(taken), at_most=TYPICAL)
        yield timed("  its 99th percentile", quantiles(taken, n=100)[98], at_most=WORST)
        yield Row("  beside python -c pass", median(taken), python)
        [steady] = await in_turns(awaited(partial(_run, runner, folder), 10), rounds=5)
        yield Row("  without a pause between two", steady, forked)
        private = [int(await _use(runner, folder, 0)) for _ in range(5)]
        yield Row("memory of its process alone", median(private), at_most=PRIVATE, unit="B")
        before = _resident()
        for _ in range(SESSIONS):
            await _use(runner, folder, LARGE)
        grown = max(0, _resident() - before)
        yield Row(f"the parent after {SESSIONS} sessions with 100 MB each", grown, at_most=KEPT, unit="B")
    runner.close()


async def _run_one(runner: SubprocessRunner, folder: str) -> float:
    await asyncio.sleep(PAUSE)
    start = perf_counter()
    await _run(runner, folder)
    return perf_counter() - start


async def _run(runner: SubprocessRunner, folder: str) -> None:
    request = SpawnRequest(f"s{perf_counter_ns()}", "bench", "bench", "Say yes", PLAN, folder)
    result = await runner.run(request, None)  # type: ignore[arg-type]  # it makes the session elsewhere
    assert result.text == "Yes."


async def _use(runner: SubprocessRunner, folder: str, size: int) -> str:
    Path(folder, "use.py").write_text(TOOL)
    rules = [{"when": {"tool": "use", "output": "(?P<bytes>.*)"}, "say": "{bytes}"}]
    calls: dict[str, Any] = {"rules": rules, "otherwise": {"call": {"tool": "use", "input": {}}}}
    plan = {
        **PLAN,
        "providers": [{"module": "provider-playbook", "config": calls}],
        "tools": [{"module": "tool-use", "source": f"{folder}/use.py", "config": {"size": size}}],
    }
    return (await run_session_in_subprocess(plan, "Use it", "bench", folder, runner=runner)).output


def _fork() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"x")
        os._exit(0)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    os.waitpid(pid, 0)


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
