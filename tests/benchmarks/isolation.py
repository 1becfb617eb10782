"""Measure sessions in processes of their own: from start to result, their memory, and what the parent keeps of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

from amplifier_core.hook_data import SpawnRequest
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.runner import SubprocessRunner

from .measure import Figure, Row, awaited, called, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .measure import Sample

FORKS = 3.5  # goal: times a bare fork and its result
SLOWEST_RATIO = 4.0  # goal: times the slowest of as many forks; 15 ms where these take 4
PRIVATE_RATIO = 3.2  # goal: times a bare fork; 3 MB where that has 0.95 for itself
KEPT_RATIO = 0.05  # goal: of what one of the sessions used; 5 MB of 100
SESSIONS, LARGE = 50, 100 * 2**20
RUNS, FEW = 60, 7
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


async def processes() -> AsyncIterator[Row]:
    """Run trivial sessions one after another, beside forks and Pythons."""
    async with _runner() as (runner, folder):
        run = partial(_run, runner, folder)
        ours, forked, python = await in_turns(_rested(run), called(_fork, 5), called(_start_python, 1), rounds=RUNS)
        yield Row("a session in a process of its own / os.fork and its result", ours, forked, at_most_ratio=FORKS)
        slowest, slowest_fork = (_percentile(each, 0.99) for each in (ours, forked))
        yield Row("  the 99th percentile of both", slowest, slowest_fork, at_most_ratio=SLOWEST_RATIO)
        yield Row("  beside python -c pass", ours, python)
        steady, forked = await in_turns(awaited(run, 10), called(_fork, 20), rounds=FEW)
        yield Row("  without a pause between two", steady, forked)


async def memory() -> AsyncIterator[Row]:
    """Look at the memory of the processes, and of their parent after them."""
    async with _runner() as (runner, folder):
        private = Figure([float(await _use(runner, folder, 0)) for _ in range(FEW)])
        forked = Figure([float(_private_of_fork()) for _ in range(FEW)])
        yield Row("memory of its process alone / that of a bare fork", private, forked, PRIVATE_RATIO, unit="B")
        before = _resident()
        for _ in range(SESSIONS):
            await _use(runner, folder, LARGE)
        grown = max(0, _resident() - before)
        what = f"the parent is larger after {SESSIONS} sessions with 100 MB each / one of them"
        yield Row(what, grown, LARGE, at_most_ratio=KEPT_RATIO, unit="B")


PARTS = (processes, memory)


@asynccontextmanager
async def _runner() -> AsyncIterator[tuple[SubprocessRunner, str]]:
    runner = SubprocessRunner()
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        yield runner, folder
    runner.close()


def _rested(run: Callable[[], Awaitable[None]]) -> Sample:
    """Return a sample of one session, after a pause."""

    async def sample() -> float:
        await asyncio.sleep(PAUSE)
        start = perf_counter()
        await run()
        return perf_counter() - start

    return sample


def _percentile(figure: Figure, share: float) -> float:
    return sorted(figure.rounds)[round(share * (len(figure.rounds) - 1))]


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


def _fork(result: Callable[[], str] = lambda: "x") -> str:
    """Fork this process; return the result of the fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, result().encode())
        os._exit(0)
    os.close(write)
    told = os.read(read, 99).decode()
    os.close(read)
    os.waitpid(pid, 0)
    return told


def _private_of_fork() -> str:
    """Return the bytes that a fork has for itself, counted as the tool of a session counts them."""
    return _fork(_count_private)


def _count_private() -> str:
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()]
    return str(1024 * sum(int(row[1]) for row in rows if row[0] in ("Private_Dirty:", "Private_Clean:")))


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
