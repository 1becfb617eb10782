"""Runs `up` where nobody reads its output: as under a collector of logs that has stopped."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0
PROGRAM = (sys.executable, "-m", "amplifier_foundation")
BUNDLE = """---
bundle: {name: tend}
providers: [{module: provider-playbook, config: {otherwise: {say: hello}}}]
background_sessions: [{name: asked, instruction: Look.}]
---
You look after things.
"""
BLOCKED = """
import asyncio, os, time
from amplifier_foundation.cli import signals
signals.GRACE = 0.05
async def hang():
    with signals.Stopper():
        os.kill(os.getpid(), 15)
        time.sleep(600)
asyncio.run(hang())
"""


@pytest.fixture
def unread() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe without room."""
    reading, writing = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    fill(writing)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def fill(writing: int) -> None:
    """Take all room of a pipe."""
    os.set_blocking(writing, False)
    try:
        while os.write(writing, b"." * 512):
            pass
    except BlockingIOError:
        os.set_blocking(writing, True)


def test_up_works_while_nobody_reads_its_lines_and_tells_how_many_are_left_out(
    tmp_path: Path, unread: tuple[int, int]
) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE)
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_TRUST": "1"}

    def amplifier(*arguments: str) -> str:
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    amplifier("trigger", "fire", "asked")
    reading, writing = unread
    with subprocess.Popen([*PROGRAM, "up"], cwd=tmp_path, env=environment, stdout=writing, stderr=writing) as up:
        try:
            end = time.monotonic() + PATIENCE
            while "✓ asked" not in amplifier("logs"):
                assert time.monotonic() < end
            os.read(reading, 1 << 20)
            up.terminate()
            assert up.wait(PATIENCE) == 143
        finally:
            up.kill()
    said = os.read(reading, 1 << 20).decode()
    assert re.fullmatch(r"amplifier: lines left out here, as nobody read them: \d+\nStopping: .*\n", said)


def test_a_blocked_process_whose_stderr_has_no_room_ends_after_its_grace(unread: tuple[int, int]) -> None:
    assert (
        subprocess.run([sys.executable, "-c", BLOCKED], stderr=unread[1], timeout=PATIENCE, check=False).returncode
        == 143
    )
