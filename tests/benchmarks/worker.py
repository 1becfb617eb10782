"""A script that runs in a process of its own, under whichever interpreter, and measures when it is asked."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .environment import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

SCRIPTS = Path(__file__).with_name("scripts")
MODULES = [ROOT / "plugins" / f"amplifier-{name}" for name in ("loop-basic", "context-simple", "provider-playbook")]
"""Ours that mount on the published kernel too."""
QUIET = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def environment() -> dict[str, str]:
    """Return what a script finds in its environment: our modules to import, and no packages that report home."""
    return {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(map(str, MODULES))}


class Worker:
    """A process that waits for questions."""

    def __init__(self, process: asyncio.subprocess.Process, script: str, errors: IO[bytes]) -> None:
        self._process = process
        self._script = script
        self._errors = errors

    async def measure(self, question: str) -> float:
        """Return the answer; raises `RuntimeError` with the last line of its errors when the process ended instead."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{question}\n".encode())
        answer = await self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"{self._script}, asked for {question}: {said[-1] if said else 'it ended'}")
        return float(json.loads(answer))

    def sample(self, question: str) -> Sample:
        """Return a sample that asks `question`."""
        return partial(self.measure, question)


@asynccontextmanager
async def worker(python: Path, script: str) -> AsyncIterator[Worker]:
    """Run a script of `scripts`; at the end it is told that there are no more questions."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            SCRIPTS / f"{script}.py",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment(),
        )
        try:
            yield Worker(process, script, errors)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
