"""A person at a terminal, and a bundle whose tools can be held up and asked about."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from amplifier_core import StoreDamaged, load_plugins
from amplifier_foundation import Activity, load_bundle, open_inbox
from amplifier_foundation.background.up import Control, Up, run_background
from amplifier_foundation.cli import invoke
from tests import forks

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
PATIENCE = 30.0


class Terminal:
    """The program at a terminal of its own, and what a person sees and types there."""

    def __init__(self, *arguments: str, term: str = "dumb", colour: bool = False) -> None:
        self._side, other = pty.openpty()
        self._process = forks.Popen(
            arguments,
            at_terminal=True,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            env={**os.environ, "TERM": term, "NO_COLOR": "" if colour else "1", "COLUMNS": "200"},
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

    def continue_after_shell(self) -> None:
        """Let the program go on, as `fg` does: in the mode of the shell; and wait until it takes single keys again."""
        modes = termios.tcgetattr(self._side)
        modes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(self._side, termios.TCSANOW, modes)
        self.signal(signal.SIGCONT)
        ends = time.monotonic() + PATIENCE
        while termios.tcgetattr(self._side)[3] & termios.ICANON:
            assert time.monotonic() < ends, "it reads lines"
            time.sleep(0.005)

    def rests(self) -> None:
        """Wait until the program waits itself: a signal before would come before its wait begins."""
        status, before = Path(f"/proc/{self._process.pid}/status"), ""
        while "State:\tS" not in before or status.read_text() != before:
            before = status.read_text()
            time.sleep(0.02)

    def say(self, line: str) -> str:
        """Type a line at the prompt, and return what is shown until the next one."""
        self.type(f"{line}\n")
        return self.prompted()

    def ended(self) -> int:
        """Return the code that the program ended with."""
        return self._process.wait(PATIENCE)

    def prints_keys(self) -> bool:
        """Return whether the terminal prints the keys that are typed."""
        return bool(termios.tcgetattr(self._side)[3] & termios.ECHO)

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        os.kill(self._process.pid, number)

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
        def __init__(self, *arguments: str, term: str = "dumb", colour: bool = False) -> None:
            super().__init__(*arguments, term=term, colour=colour)
            begun.append(self)

    yield Tracked
    for each in begun:
        each.close()


@pytest.fixture
def with_report(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return a function that makes a package with the command `report` of some code: the environment that has it."""

    def make(code: str) -> dict[str, str]:
        site = tmp_path / "site"
        about = site / "other-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Name: other\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[amplifier.commands]\nreport = other:report\n")
        (site / "other.py").write_text(code)
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path}

    return make


@pytest.fixture
def modules(project: Path) -> Path:
    """A folder with the modules `wait.py` (a tool) and `ask.py` (a hook that asks before files are written)."""
    folder = project / "modules"
    folder.mkdir()
    (folder / "wait.py").write_text(WAIT, encoding="utf-8")
    (folder / "ask.py").write_text(ASK, encoding="utf-8")
    return folder


BACKGROUND = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^hold'}
          call: {tool: wait, input: {what: it}}
        - when: {tool: wait}
          say: "held"
      otherwise: {say: "You said: {prompt}"}
tools: [{module: wait, source: ./modules/wait.py}]
background_sessions:
  - {name: asked, instruction_template: "say {what}"}
  - {name: broken, max_attempts: 1, instruction_template: "{absent}"}
  - {name: careful, if: data.n > 1}
  - {name: holding, instruction_template: hold}
---
"""


@pytest.fixture
def background(home: Path, modules: Path) -> Path:
    """A bundle whose background sessions are woken by hand: they answer, fail, choose, or hold until there is `go`."""
    path = modules.parent / "bundle.md"
    path.write_text(BACKGROUND, encoding="utf-8")
    return path


class Running:
    """Background sessions that run in this process, and what is told of them."""

    def __init__(self, up: Up, control: Control) -> None:
        self.up = up
        self.control = control
        self.told: list[tuple[str, str]] = []
        self.stop_asked = asyncio.Event()
        self.is_store_damaged = False
        self._changed = asyncio.Event()

    def see(self, activity: Activity) -> None:
        """Note what happened."""
        self.told.append((activity.name, activity.kind))
        self._changed.set()

    def damage_store(self, home: Path) -> None:
        """Overwrite pages of the store of this process, whose end may or may not read them."""
        self.is_store_damaged = True
        with (home / "amplifier.db").open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 10)

    async def until(self, queue: str, kind: str, *, count: int = 1) -> None:
        """Return when this has happened so often."""
        async with asyncio.timeout(PATIENCE):
            while self.told.count((queue, kind)) < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def running(background: Path) -> AsyncIterator[Running]:
    """The background sessions of `background`, running; what is at work at the end is let go."""
    plugins = load_plugins(environ={})
    store, control = open_inbox(plugins), Control()
    bundle = await load_bundle(str(background))
    seen: list[Running] = []

    def observe(activity: Activity) -> None:
        for each in seen:
            each.see(activity)

    try:
        async with run_background([bundle], store, plugins, observer=observe, control=control) as [up]:
            seen.append(Running(up, control))
            control.asked_to_stop = seen[0].stop_asked.set
            yield seen[0]
            (background.parent / "go").touch()
    except StoreDamaged:
        if not seen[0].is_store_damaged:
            raise
    await store.close()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Awaitable[tuple[int, str, str]]]:
    """Give a command while this process's event loop runs on; returns code, stdout and stderr."""

    async def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(invoke, arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return command
