"""Ctrl-C while a module blocks the event loop of a run, or does not end at its cancellation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from amplifier_foundation.cli import exits
from tests import forks

MODULE = """
import asyncio
import sys
from contextlib import suppress


def hang():
    begin()
    open("gate")  # a pipe that nobody writes to


def begin():
    print("begun", file=sys.stderr, flush=True)


class Hang:
    name, description = "hang", "Hang."

    def __init__(self, where):
        self.where = where

    @property
    def input_schema(self):
        if self.where == "schema":
            hang()
        return {"type": "object", "properties": {}}

    async def execute(self, input):
        if self.where == "tool":
            hang()
        if self.where == "cleans up":
            try:
                begin()
                await asyncio.Event().wait()
            finally:
                opening = asyncio.ensure_future(asyncio.to_thread(open, "gate"))
                while not opening.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({opening})
                open("cleaned", "w").close()
        if self.where == "any error":
            while True:
                try:
                    hang()
                except BaseException:
                    pass
        begin()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.where == "clean-up":
                    hang()


async def mount(coordinator, config):
    if config["where"] == "mount":
        hang()
    if config["where"] == "opening":
        begin()
        await asyncio.Event().wait()
    await coordinator.mount("tools", Hang(config["where"]))
    return hang if config["where"] == "end" else None
"""
BUNDLE = """---
bundle: {name: hanging}
providers:
  - module: provider-playbook
    config:
      rules: [{when: {user: go}, call: {tool: hang, input: {}}}]
      otherwise: {say: fine}
tools: [{module: hang, source: ./hang.py, config: {where: WHERE}}]
---
"""
BLOCKED = r"amplifier: blocked by hang \(\S+/hang\.py:9\)( < [^\n]+)?\. Ctrl-C again ends the program\n"
GOES_ON = r"the turn goes on although it was cancelled: [^\n]*hang\.py:\d+\)\. Ctrl-C ends the program\n"
SHOWN = {"tool": "cancelled", "end": "completed", "cancellation": "interrupted"}
PLACES = ["tool", "any error", "schema", "clean-up", "end", "mount", "cancellation"]


@pytest.fixture
def hanging(home: Path, project: Path) -> Callable[[str], None]:
    """Writes a bundle whose module hangs at a place."""

    def write(where: str) -> None:
        os.mkfifo(project / "gate")
        (project / "hang.py").write_text(MODULE)
        (project / "bundle.md").write_text(BUNDLE.replace("WHERE", where))

    return write


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begins a run without a terminal, which is killed with the test, or when that takes too long."""
    begun: list[tuple[subprocess.Popen[str], Timer]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = forks.Popen(["run", *arguments], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        begun.append((process, Timer(60, process.kill)))
        begun[-1][1].start()
        return process

    yield start
    for process, limit in begun:
        limit.cancel()
        process.kill()
        process.communicate()


def status_of_session() -> str:
    listed = forks.run(["session", "list", "--json"])
    [record] = json.loads(listed.stdout)["data"]
    status: str = record["status"]
    return status


def press(process: subprocess.Popen[str], pattern: str) -> str:
    """Press Ctrl-C, and return the next line; it must match."""
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    line: str = process.stderr.readline()
    assert re.fullmatch(pattern, line), line
    return line


@pytest.mark.parametrize("where", PLACES)
def test_what_blocks_a_run_is_named_at_the_first_press_and_ends_at_a_later_one(
    where: str, hanging: Callable[[str], None], run: Callable[..., subprocess.Popen[str]]
) -> None:
    hanging(where)
    process = run("--json", "go" if where not in ("end", "mount") else "hello")
    assert process.stderr is not None
    while process.stderr.readline() != "begun\n":
        pass
    if where in ("clean-up", "cancellation"):
        press(process, "stopping after this step; Ctrl-C again stops now\n")
        press(process, "stopping now: hang is cut off\n")
        if where == "clean-up":
            assert process.stderr.readline() == "begun\n"
            assert re.fullmatch(BLOCKED, process.stderr.readline())
    else:
        press(process, BLOCKED)
    if where == "cancellation":
        press(process, GOES_ON)
    process.send_signal(signal.SIGINT)
    if where == "any error":
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == exits.INTERRUPTED
    out, err = process.communicate()
    if where == "cancellation":
        place = r"wait \(\S+\) < execute \(\S+/hang\.py:\d+\)"
        assert re.match(f"amplifier: ended while the turn goes on: {place}\n", err), err
    assert "stopping after this step" not in err
    if where != "mount":
        assert status_of_session() == {"tool": "cancelled", "end": "completed"}.get(where, "interrupted")
    if where == "tool":
        shown = forks.run(["session", "show", "last", "--json"]).stdout
        assert "Error: KeyboardInterrupt: Ctrl-C has ended the call" in shown
    if where in SHOWN:
        assert json.loads(out)["data"]["status"] == SHOWN[where]


@pytest.mark.parametrize("where", PLACES)
def test_what_blocks_a_conversation_is_named_and_ends_at_a_later_press(
    where: str, hanging: Callable[[str], None], terminals: Any
) -> None:
    hanging(where)
    person = terminals("run")
    if where != "mount":
        person.prompted()
        person.type("/quit\n" if where == "end" else "go\n")
    person.until("begun\n")
    person.type("\x03")
    if where in ("clean-up", "cancellation"):
        person.until("stopping after this step; Ctrl-C again stops now\n")
        person.type("\x03")
        person.until("stopping now: hang is cut off\n")
    if where == "cancellation":
        person.type("\x03")
        person.until(GOES_ON)
    else:
        person.until(BLOCKED)
    person.type("\x03")
    person.until("ended while the turn goes on: " if where == "cancellation" else "amplifier: interrupted\n")
    assert person.ended() == exits.INTERRUPTED
    assert person.prints_keys()


def test_two_presses_and_no_third_name_where_a_turn_goes_on_that_was_cancelled(
    hanging: Callable[[str], None], run: Callable[..., subprocess.Popen[str]]
) -> None:
    hanging("cancellation")
    process = run("go")
    assert process.stderr is not None
    while process.stderr.readline() != "begun\n":
        pass
    press(process, "stopping after this step; Ctrl-C again stops now\n")
    press(process, "stopping now: hang is cut off\n")
    assert re.fullmatch(GOES_ON, process.stderr.readline())
    press(process, r"amplifier: ended while the turn goes on: wait .*hang\.py:\d+\)\n")
    assert re.fullmatch(r"amplifier: continue with: amplifier run --resume hanging-\w+\n", process.stderr.readline())
    assert process.wait(60) == exits.INTERRUPTED


def test_three_quick_presses_let_a_cancelled_turn_clean_up(
    hanging: Callable[[str], None], run: Callable[..., subprocess.Popen[str]]
) -> None:
    hanging("cleans up")
    process = run("--json", "go")
    assert process.stderr is not None
    while process.stderr.readline() != "begun\n":
        pass
    press(process, "stopping after this step; Ctrl-C again stops now\n")
    press(process, "stopping now: hang is cut off\n")
    press(process, GOES_ON)
    Path("gate").open("w").close()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == exits.INTERRUPTED
    assert Path("cleaned").exists()
    assert json.loads(out)["data"]["status"] == "interrupted"


def test_a_program_that_ends_with_its_turn_leaves_no_sign_of_life_at_the_terminal(
    hanging: Callable[[str], None], terminals: Any
) -> None:
    hanging("cancellation")
    person = terminals("run", term="xterm")
    person.until("> ")
    person.type("go\n")
    person.until("begun")
    for line in ("stopping after", "stopping now", "the turn goes on although"):
        person.type("\x03")
        person.until(line)
    person.type("\x03")
    shown = person.until(r"--resume hanging-\w+\n")
    assert not re.search(r"hang, \d+ s", shown.partition("ended while")[2]), shown
    assert person.ended() == exits.INTERRUPTED


def test_ctrl_c_ends_a_conversation_whose_session_is_not_open_yet(
    hanging: Callable[[str], None], terminals: Any
) -> None:
    hanging("opening")
    person = terminals("run")
    person.until("begun\n")
    person.type("\x03")
    person.until("amplifier: interrupted\n")
    assert person.ended() == exits.INTERRUPTED
