"""Measure what a person asks, from 100 sessions to 100,000 and 1,000,000 deliveries, each command as a new process."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from .kept_stores import COMMON, MIDDLE, RARE, SIZES, keep_store
from .measure import Row, curve, in_turns
from .startup import NOTHING, PROGRAM, PYTHON, compiled, run_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from .kept_stores import KeptStore
    from .measure import Sample

LARGEST_RATIO = 12.0
"""Goal: times a Python that does nothing, on the largest store; on a small one 10 are allowed (`startup`)."""
LOADING_RATIO = 16.0
"""Goal for a command that loads a bundle."""
WORK_RATIO = 3.0
"""Goal: the work of a command without its start on the largest store, in times of the same on the smallest."""
ROUNDS = 7
COMMANDS = (
    (("session", "list"), LARGEST_RATIO),
    (("session", "list", "--status", "failed", "--since", "1d"), LARGEST_RATIO),
    (("session", "list", "--search", RARE), LARGEST_RATIO),
    (("session", "list", "--search", COMMON), LARGEST_RATIO),
    (("session", "show", MIDDLE), LARGEST_RATIO),
    (("ps",), LARGEST_RATIO),
    (("logs", "-n", "20"), LARGEST_RATIO),
    (("trigger", "list"), LOADING_RATIO),
    (("why", MIDDLE), LARGEST_RATIO),
)
IN_PROCESS = """
import io, json, sys, time
from contextlib import redirect_stderr, redirect_stdout
from amplifier_foundation.cli import invoke
taken = []
for _ in range(6):
    begun = time.perf_counter()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert invoke(sys.argv[1:]) == 0
    taken.append(time.perf_counter() - begun)
print(json.dumps(min(taken[1:])))
"""
"""Runs a command several times, and prints the seconds of the fastest: its start and its imports are paid before."""


async def measure_command(command: Sequence[str], ratio: float) -> AsyncIterator[Row]:
    """Run a command on each store."""
    stores = [await keep_store(*size) for size in SIZES]
    name = f"amplifier {' '.join(command)}"
    *taken, nothing = await in_turns(
        *[_run(store, PROGRAM, *command) for store in stores], run_command(*NOTHING), rounds=ROUNDS
    )
    sessions = [size for size, _ in SIZES]
    yield curve(f"{name}, of sessions", list(zip(sessions, taken, strict=True)))
    what = f"{name}, {SIZES[-1][0]:,} sessions and {SIZES[-1][1]:,} deliveries / python -c pass"
    yield Row(what, taken[-1], nothing, at_most_ratio=ratio)
    ends = [_work(store, command) for store in (stores[-1], stores[0])]
    most, least = await in_turns(*ends, rounds=ROUNDS)
    what = f"{name} without its start, {sessions[-1]:,} sessions / {sessions[0]:,}"
    yield Row(what, most, least, at_most_ratio=WORK_RATIO)


PARTS = tuple(partial(measure_command, command, ratio) for command, ratio in COMMANDS)


def _run(store: KeptStore, *command: str) -> Sample:
    """Return a sample of a new process with compiled modules, in the project of a store."""
    environ = _environ(store)

    async def sample() -> float:
        start = perf_counter()
        subprocess.run(
            command, check=True, capture_output=True, cwd=store.project, env=environ, stdin=subprocess.DEVNULL
        )
        return perf_counter() - start

    return sample


def _work(store: KeptStore, command: Sequence[str]) -> Sample:
    """Return a sample of a command within a process that has run it before."""

    async def sample() -> float:
        told = subprocess.run(
            (PYTHON, "-c", IN_PROCESS, *command),
            check=True,
            capture_output=True,
            cwd=store.project,
            env=_environ(store),
            stdin=subprocess.DEVNULL,
        )
        return float(json.loads(told.stdout))

    return sample


def _environ(store: KeptStore) -> dict[str, str]:
    return {**compiled(), "AMPLIFIER_HOME": str(store.home), "PATH": os.environ["PATH"]}
