"""What a tool leaves running at the end of a command: it is named; a task is given up, a thread is waited for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from amplifier_foundation.cli import exits

TOOL = """
import asyncio, threading

async def go_on():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

class Leaving:
    name = description = "leaving"
    input_schema = {"type": "object"}

    async def execute(self, input):
        LEAVE
        await asyncio.sleep(0)
        return "left"

async def mount(coordinator, config):
    await coordinator.mount("tools", Leaving())
"""
BUNDLE = """---
bundle: {name: leaving}
tools: [{module: tool-leaving, source: ./leaving.py}]
providers:
  - module: provider-playbook
    config:
      rules: [{when: {tool: leaving}, say: "{result}"}, {when: {user: go}, call: {tool: leaving, input: {}}}]
---
You help.
"""
RUN = """
from amplifier_foundation import cli
from amplifier_foundation.cli import loops

loops.NAME_AFTER, loops.GIVE_UP_AFTER = 0.01, 0.02
cli.main(["-q", "run", "go"])
"""


def start(project: Path, leave: str) -> subprocess.Popen[str]:
    (project / "leaving.py").write_text(TOOL.replace("LEAVE", leave))
    (project / "bundle.md").write_text(BUNDLE)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=project, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )


def test_a_task_that_ignores_its_cancellation_is_named_and_given_up(project: Path) -> None:
    with start(project, "self.task = asyncio.create_task(go_on())") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (exits.OK, "left\n")
    assert re.fullmatch(
        "amplifier: waiting for what goes on although it was cancelled: .*go_on .*leaving.py:7.*Ctrl-C ends it\n", err
    )


def test_a_thread_that_holds_up_the_end_is_named_and_ends_at_ctrl_c(project: Path) -> None:
    with start(project, "threading.Thread(target=threading.Event().wait, name='waiter').start()") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "amplifier: waiting for threads that a plugin or tool has left running: waiter. Ctrl-C ends them\n"
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.INTERRUPTED
        assert process.stdout is not None
        assert process.stdout.read() == "left\n"
