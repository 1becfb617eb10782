"""What a tool leaves behind at the end of a command: a task is named and given up, a thread is named and waited for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits

pytestmark = pytest.mark.slow

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

loops.NAME_AFTER, loops.GIVE_UP_AFTER, loops.POOL_ENDS_WITHIN = 0.01, 0.02, 0.01
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


HANGING = """
import asyncio, os, signal, sys, threading, time
from amplifier_foundation import cli
from amplifier_foundation.cli import loops
from amplifier_foundation.cli.running.foreground import Foreground

loops.NAME_AFTER, loops.GIVE_UP_AFTER = 0.01, 600

async def go_on():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def leave():
    cli.task = asyncio.create_task(go_on())
    await asyncio.sleep(0)

async def hang():
    await leave()
    threading.Thread(target=press, daemon=True).start()
    await asyncio.Event().wait()

def press():
    for _ in sys.stdin:
        while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "select":
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

def talk():
    Foreground().run(leave())
"""


def hanging(command: str) -> subprocess.Popen[str]:
    end = f"\ncli.cli.command('hang')({command})\ncli.main(['hang'])"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", HANGING + end], stdin=pipe, stderr=pipe, text=True, bufsize=1)


def test_a_second_ctrl_c_ends_a_task_that_ignores_its_cancellation_by_the_first() -> None:
    with hanging("loops.run_in_loop(hang)") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("press\n")
        assert process.stderr.readline().endswith("Ctrl-C ends it\n")
        process.stdin.write("press\n")
        assert process.wait(60) == exits.INTERRUPTED
        assert process.stderr.read() == "\namplifier: interrupted\n"


def test_ctrl_c_ends_a_task_that_a_conversation_has_left_running() -> None:
    with hanging("talk") as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith("Ctrl-C ends it\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.INTERRUPTED


@pytest.mark.parametrize(
    ("leave", "name"),
    [
        ("threading.Thread(target=threading.Event().wait, name='waiter').start()", "waiter"),
        ("asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)", r"asyncio_\d+"),
        ("self.task = asyncio.create_task(asyncio.to_thread(threading.Event().wait))", r"asyncio_\d+"),
    ],
)
def test_a_thread_that_holds_up_the_end_is_named_and_ends_at_ctrl_c(leave: str, name: str, project: Path) -> None:
    with start(project, leave) as process:
        assert process.stderr is not None
        assert re.fullmatch(
            f"amplifier: waiting for threads that a plugin or tool has left running: {name}. Ctrl-C ends them\n",
            process.stderr.readline(),
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.INTERRUPTED
        assert process.stdout is not None
        assert process.stdout.read() == "left\n"


def test_threads_are_waited_for_unnamed_where_no_more_can_be_started() -> None:
    code = """
import threading
from amplifier_foundation.cli import loops

def refuse(*args, **kwargs):
    raise RuntimeError("can't start new thread")

end = threading.Event()
threading.Thread(target=lambda: end.wait() and print("ended")).start()
threading._start_new_thread = threading._start_joinable_thread = refuse
loops.name_threads()
end.set()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_a_tool_that_closes_stdout_takes_away_no_answer(project: Path) -> None:
    with start(project, "__import__('sys').stdout.close()") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (exits.OK, "left\n", "")
