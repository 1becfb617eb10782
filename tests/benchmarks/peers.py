"""Our kernel beside the packages that people use today, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .environment import peers_python
from .measure import Row, in_turns
from .worker import SCRIPTS, environment, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .worker import Worker

KERNEL = "amplifier-core"
AGENTS = ("langgraph", "openai-agents", "pydantic-ai")

EMIT_AT_MOST = 1 / 200  # goal: times the peer
LIFE_AT_MOST = 1 / 25  # goal: times the peer, with modules already resolved
TURN_AT_MOST = 1 / 60  # goal: times the peer, nothing stored
MEMORY_AT_MOST = 1 / 3  # goal: times the peer

PROCESSES = 100
OURS = Path(sys.executable)


async def kernels() -> AsyncIterator[Row]:
    """Ask the same of ours and of the published kernel, turn by turn; without the peers, of ours alone."""
    async with AsyncExitStack() as processes:
        workers = [await processes.enter_async_context(worker(python, "kernel")) for python in _pythons()]
        for handlers in (0, 1, 10):
            figures = await _asked(f"emit_{handlers}", workers, rounds=15)
            what = f"hooks.emit, {handlers} handler{'s' * (handlers != 1)}"
            yield _beside(KERNEL, what, figures, at_most_ratio=EMIT_AT_MOST)
        figures = await _asked("life", workers, rounds=7)
        yield _beside(KERNEL, "session made, initialised, cleaned up", figures, at_most_ratio=LIFE_AT_MOST)


async def turns() -> AsyncIterator[Row]:
    """Ask for the same turn of the kernels and of the agent packages, turn by turn."""
    pythons, scripts = _pythons(), [f"turn_{name.replace('-', '_')}" for name in AGENTS]
    asked = [(python, "kernel") for python in pythons] + [
        (python, script) for python in pythons[1:] for script in scripts
    ]
    async with AsyncExitStack() as processes:
        workers = [await processes.enter_async_context(worker(*each)) for each in asked]
        ours, *theirs = await _asked("turn", workers, rounds=11)
    for index, name in enumerate((KERNEL, *AGENTS)):
        yield _beside(name, "a turn with one tool call", [ours, *theirs[index:]], at_most_ratio=TURN_AT_MOST)


async def memory() -> AsyncIterator[Row]:
    """Compare what an idle session of ours and of the published kernel holds."""
    figures = await in_turns(*(partial(_memory, python) for python in _pythons()), rounds=5)
    yield _beside(KERNEL, "memory of an idle session, of 1,000", figures, at_most_ratio=MEMORY_AT_MOST, unit="B")


async def ends() -> AsyncIterator[Row]:
    """Count the processes that do not end well; the published kernel's are told beside."""
    ours, *theirs = [await _crashes(python) for python in _pythons()]
    yield Row("processes of two sessions that crash / all of them", ours, PROCESSES, at_most_ratio=0, unit="")
    for crashed in theirs:
        yield Row(f"  of {KERNEL} / all of them", crashed, PROCESSES, unit="")


PARTS = (kernels, turns, memory, ends)


def _pythons() -> list[Path]:
    """Return the interpreters: ours, and the peers' where they are installed."""
    return [python for python in (OURS, peers_python()) if python]


def _beside(peer: str, what: str, figures: list[float], **allowed: Any) -> Row:
    """Return a row of the first figure beside the second; without one, the peer is not there."""
    ours, *theirs = figures
    return Row(f"{what} / {peer}", ours, theirs[0] if theirs else None, note="not installed", **allowed)


async def _asked(question: str, workers: list[Worker], rounds: int) -> list[float]:
    return await in_turns(*(each.sample(question) for each in workers), rounds=rounds)


async def _memory(python: Path) -> float:
    """Return the bytes of a session in a new process: one that has freed memory would hand that out again."""
    async with worker(python, "kernel") as process:
        return await process.measure("memory")


async def _crashes(python: Path) -> float:
    """Return how many processes did not end well."""
    free = asyncio.Semaphore(os.cpu_count() or 1)

    async def crashes() -> bool:
        async with free:
            quiet = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(
                python, SCRIPTS / "start.py", stdout=quiet, stderr=quiet, env=environment()
            )
            return await process.wait() != 0

    return sum(await asyncio.gather(*(crashes() for _ in range(PROCESSES))))
