"""What the program costs before it does anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from .measure import Row, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

PYTHON = sys.executable
PROGRAM = str(Path(PYTHON).with_name("amplifier"))
NOTHING = (PYTHON, "-c", "pass")
IMPORTED = "from amplifier_core.plugins import load_plugins"
HELP_AT_MOST, HELP_RATIO_AT_MOST = 0.120, 9.0  # goal: seconds; times a Python that does nothing
PLUGINS_AT_MOST = 0.030  # goal: seconds
ROUNDS = 15


async def rows() -> AsyncIterator[Row]:
    """Run the program for its help, and load the plugins, in new processes."""
    shown, nothing = await in_turns(_run(PROGRAM, "--help"), _run(*NOTHING), rounds=ROUNDS)
    yield Row(
        "amplifier --help, cold / python -c pass",
        shown,
        nothing,
        at_most=HELP_AT_MOST,
        at_most_ratio=HELP_RATIO_AT_MOST,
    )
    loaded, imported = await in_turns(
        _run(PYTHON, "-c", f"{IMPORTED}; load_plugins()"), _run(PYTHON, "-c", IMPORTED), rounds=ROUNDS
    )
    yield Row("load_plugins(), its share of a new process", max(0.0, loaded - imported), at_most=PLUGINS_AT_MOST)


def _run(*command: str) -> Sample:
    async def sample() -> float:
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return perf_counter() - start

    return sample
