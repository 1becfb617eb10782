"""Runs `up` where nobody reads its output: as under a collector of logs that has stopped."""

from __future__ import annotations

import fcntl
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from amplifier_foundation.cli import unread as unread_pipe

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


def read_all(reading: int, up: subprocess.Popen[bytes]) -> str:
    """Return what comes until a process ends, without what filled the pipe."""
    said = b""
    while up.poll() is None or select.select([reading], [], [], 0)[0]:
        if select.select([reading], [], [], 0.1)[0]:
            said += os.read(reading, 1000)
    return said.decode().lstrip(".")


@pytest.fixture
def amplifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs commands in a project with an event, and returns what they print."""
    (tmp_path / "bundle.md").write_text(BUNDLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")

    def run(*arguments: str) -> str:
        return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=True).stdout

    run("trigger", "fire", "asked")
    return run


def test_up_works_while_nobody_reads_its_lines_and_keeps_them(
    amplifier: Callable[..., str], unread: tuple[int, int]
) -> None:
    reading, writing = unread
    with subprocess.Popen([*PROGRAM, "up"], stdout=writing, stderr=writing) as up:
        try:
            end = time.monotonic() + PATIENCE
            while "✓ asked" not in amplifier("logs"):
                assert time.monotonic() < end
            up.terminate()
            said = read_all(reading, up)
            assert up.wait(PATIENCE) == 143
        finally:
            up.kill()
    assert re.fullmatch(r"Watching .*\n(.*\n)*.*✓ asked.*\n(.*\n)*Stopping: .*\n", said)


def test_up_ends_at_sigterm_while_nobody_reads_its_lines(
    amplifier: Callable[..., str], unread: tuple[int, int]
) -> None:
    with subprocess.Popen([*PROGRAM, "up"], stdout=unread[1], stderr=unread[1]) as up:
        try:
            end = time.monotonic() + PATIENCE
            while "✓ asked" not in amplifier("logs"):
                assert time.monotonic() < end
            up.terminate()
            assert up.wait(PATIENCE) == 143
        finally:
            up.kill()


def test_up_that_ends_by_itself_waits_for_a_reader(amplifier: Callable[..., str], unread: tuple[int, int]) -> None:
    reading, writing = unread
    with subprocess.Popen([*PROGRAM, "up", "--once"], stdout=writing, stderr=writing) as up:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                up.wait(3)
            said = read_all(reading, up)
        finally:
            up.kill()
    assert up.returncode == 0
    assert "✓ asked" in said
    assert "left out" not in said


@pytest.mark.parametrize("length", [50, 6000])
def test_whole_lines_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(unread_pipe, "KEPT", 100_000)
    monkeypatch.setattr(unread_pipe, "LAST_WAIT", 0.1)
    reading, writing = os.pipe()
    lines, pipe = 2_000_000 // length, unread_pipe.UnreadPipe()
    for number in range(lines):
        line = f"{number} {'é' * length}\n".encode()
        for piece in (line[:99], line[99:]):
            pipe.write(writing, piece)
    pipe.wait_at_end()  # nobody has read anything: the rest is left out
    os.set_blocking(reading, False)
    said = b""
    while select.select([reading], [], [], PATIENCE)[0] and (some := os.read(reading, 1000)):
        said += some
        if said.endswith(b"\n") and b"left out here" in said.splitlines()[-1]:
            break
    os.close(reading)
    os.close(writing)
    *whole, note = said.decode().splitlines()
    assert whole == [f"{number} {'é' * length}" for number in range(len(whole))]
    assert note == f"amplifier: lines left out here, as nobody read them: {lines - len(whole)}"


def test_lines_go_on_after_those_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_pipe, "KEPT", 100_000)
    reading, writing = os.pipe()
    pipe, said = unread_pipe.UnreadPipe(), b""
    for number in range(20_000):
        pipe.write(writing, f"line {number}\n".encode())
    while b"left out" not in said:
        said += os.read(reading, 1000)
    pipe.write(writing, b"the last\n")
    while not said.endswith(b"the last\n"):
        said += os.read(reading, 1000)
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        while True:
            pipe.write(writing, b"nobody\n")
    os.close(writing)
    *lines, note, _ = said.decode().splitlines()
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert note.endswith(f": {20_000 - len(lines)}")


def test_lines_go_on_after_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_pipe, "KEPT", 10_000)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pipe, said = unread_pipe.UnreadPipe(), b""
    with monkeypatch.context() as patch:
        patch.setattr(unread_pipe, "Thread", _lack_thread)
        for number in range(20_000):
            pipe.write(writing, f"line {number}\n".encode())
    for _ in range(3):  # nothing follows while the reader reads
        with suppress(BlockingIOError):
            while some := os.read(reading, 1 << 20):
                said += some
        pipe.write(writing, b"the last\n")
    while not said.endswith(b"the last\n"):
        select.select([reading], [], [], PATIENCE)
        said += os.read(reading, 1 << 20)
    os.close(reading)
    os.close(writing)
    assert b"left out here" in said


def _lack_thread(**_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_blocked_process_whose_stderr_has_no_room_ends_after_its_grace(unread: tuple[int, int]) -> None:
    assert (
        subprocess.run([sys.executable, "-c", BLOCKED], stderr=unread[1], timeout=PATIENCE, check=False).returncode
        == 143
    )
