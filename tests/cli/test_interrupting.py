"""Ctrl-C before an event loop answers it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.cli.interrupting import LAST_LOOK, BlockWatch

PRESSED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
RUNS = f"""
import asyncio

async def run():
    {PRESSED}
    await asyncio.sleep(60)

async def give_up():
    try:
        await run()
    except asyncio.CancelledError:
        asyncio.current_task().cancel()
        raise

def press_before():
    make = asyncio.events.new_event_loop
    def press_and_make():
        {PRESSED}
        return make()
    asyncio.events.new_event_loop = press_and_make
"""
RUN = "program.import_module('.loops', 'amplifier_foundation.cli').run_async"
PROGRAM = """
import sys
sys.path.insert(0, "{folder}")
import amplifier_foundation.cli as program
def invoke(arguments):
    try:
        {work}
    except KeyboardInterrupt:
        print("raised")
    return 0
program.invoke = invoke
program.main([])
"""


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("import pressed", exits.INTERRUPTED, ("", "amplifier: interrupted\n")),
        (PRESSED, exits.OK, ("raised\n", "")),
        (f"{RUN}(run())", exits.OK, ("raised\n", "")),
        (f"{RUN}(give_up())", exits.OK, ("raised\n", "")),
        (f"press_before(); {RUN}(run())", exits.OK, ("raised\n", "")),
    ],
    ids=["in an import", "elsewhere", "in a loop", "in work that cancels its task, too", "before a loop"],
)
def test_ctrl_c_ends_the_process_in_an_import_and_is_raised_elsewhere(
    work: str, code: int, said: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pressed.py").write_text(PRESSED)
    program = RUNS + PROGRAM.format(folder=tmp_path, work=work)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, (ended.stdout, ended.stderr)) == (code, said)


@pytest.mark.parametrize("by", ["one call", "two calls"])
def test_only_calls_that_are_seen_at_each_look_are_named(
    by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates, arrivals, told = [[threading.Event() for _ in range(count)] for count in (2, 2, 1)]
    looks, watches = list[float](), list[BlockWatch]()

    def block(index: int) -> None:
        arrivals[index].set()
        assert gates[index].wait(60)

    def first() -> None:
        block(0)

    def second() -> None:
        block(1)

    def both() -> None:
        first()
        second()

    async def program() -> None:
        loop = asyncio.get_running_loop()
        watches.append(BlockWatch(loop))
        for call in [both] if by == "one call" else [first, second]:
            loop.call_soon(call)

    class Turned(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout != LAST_LOOK:
                looks.append(timeout or 0.0)
                if len(looks) == 2:  # the second call runs when the loop is looked at again
                    gates[0].set()
                    assert arrivals[1].wait(60)
                elif len(looks) == 3:
                    watches[0].end()
                    told[0].set()
            return len(looks) > 2

    thread = threading.Thread(target=asyncio.run, args=(program(),))
    thread.start()
    assert arrivals[0].wait(60)
    monkeypatch.setattr(threading, "Event", Turned)
    watches[0].begin()
    assert told[0].wait(60)
    gates[1].set()
    thread.join()
    said = capsys.readouterr().err
    assert said.startswith("amplifier: blocked by both (") if by == "one call" else said == ""


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (("session", "prune", "--keep", "1"), r"Delete .*\?"),
        (("auth", "login", "openai"), "Key for OPENAI_API_KEY"),
    ],
)
def test_ctrl_c_ends_a_command_at_its_question(
    command: tuple[str, ...], question: str, background: Path, terminals: Any
) -> None:
    assert [invoke(["run", "hello"]) for _ in range(2)] == [exits.OK, exits.OK]
    person = terminals(*command)
    person.until(question)
    person.rests()
    person.type("\x03")
    person.until("interrupted")
    assert person.ended() == exits.INTERRUPTED
