"""A person at a terminal, and a bundle whose tools can be held up and asked about."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

WAIT = '''
import asyncio
import sys
from pathlib import Path


class Wait:
    """Ends when there is a file `go`; tells on stderr what it began, and with a file what it ended."""

    name = "wait"
    description = "Wait."
    input_schema = {"type": "object", "properties": {"what": {"type": "string"}}}

    async def execute(self, input):
        print(f"begun {input['what']}", file=sys.stderr, flush=True)
        while not Path("go").exists():
            await asyncio.sleep(0.005)
        Path(f"ended-{input['what']}").touch()
        return {"waited": input["what"]}


async def mount(coordinator, config):
    await coordinator.mount("tools", Wait())
'''
ASK = """
from amplifier_core.models import HookResult


async def mount(coordinator, config):
    async def ask(event, data):
        if data["tool_name"] == "write_file":
            return HookResult(action="ask_user", approval_prompt="Write hello.txt?", approval_options=["Allow", "Deny"])
        return HookResult()

    coordinator.hooks.register("tool:pre", ask, priority=1, name="ask")
"""
ON_A_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from amplifier_foundation.cli import main
main()
"""
PATIENCE = 30.0


class Terminal:
    """The program at a terminal of its own, and what a person sees and types there."""

    def __init__(self, *arguments: str) -> None:
        self._side, other = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", ON_A_TERMINAL, *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"},
        )
        os.close(other)
        self._unread = ""

    def until(self, pattern: str) -> str:
        """Return what is shown up to where `pattern` matches; the rest is for the next one."""
        ends = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self._unread)) is None:
            ready, _, _ = select.select([self._side], [], [], ends - time.monotonic())
            assert ready, f"{pattern!r} did not come; there was: {self._unread!r}"
            self._unread += self._read()
        shown, self._unread = self._unread[: found.end()], self._unread[found.end() :]
        return shown

    def _read(self) -> str:
        try:
            return os.read(self._side, 65536).decode().replace("\r\n", "\n")
        except OSError:  # nobody is at the other side any more
            raise AssertionError(f"the program ended; there was: {self._unread!r}") from None

    def prompted(self) -> str:
        """Return what is shown until a prompt stands there."""
        return self.until(r"(?:\A|\n)> \Z")

    def type(self, text: str) -> None:
        """Type a text; a line ends with `\\n`, and `\\x03` is Ctrl-C."""
        os.write(self._side, text.encode())

    def say(self, line: str) -> str:
        """Type a line at the prompt, and return what is shown until the next one."""
        self.type(f"{line}\n")
        return self.prompted()

    def ended(self) -> int:
        """Return the code that the program ended with."""
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """End the program, if it has not ended."""
        self._process.kill()
        self._process.wait()
        os.close(self._side)


@pytest.fixture
def terminals() -> Iterator[type[Terminal]]:
    """Begins programs at terminals, which end with the test."""
    begun: list[Terminal] = []

    class Tracked(Terminal):
        def __init__(self, *arguments: str) -> None:
            super().__init__(*arguments)
            begun.append(self)

    yield Tracked
    for each in begun:
        each.close()


@pytest.fixture
def modules(project: Path) -> Path:
    """A folder with the modules `wait.py` (a tool) and `ask.py` (a hook that asks before files are written)."""
    folder = project / "modules"
    folder.mkdir()
    (folder / "wait.py").write_text(WAIT, encoding="utf-8")
    (folder / "ask.py").write_text(ASK, encoding="utf-8")
    return folder
