"""A session's panel below its conversation, in a terminal emulator: tmux."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ..programs import require

pytestmark = pytest.mark.slow

LOOP = '''
import asyncio
import json
import socket
import threading

from rich.text import Text


class Foreman:
    """Shows and says what the other side of a socket tells it, a line of JSON each; its panel comes with a turn."""

    def __init__(self, coordinator, port):
        self.coordinator, self.port = coordinator, port
        self.lines, self.notify, self.told = [], None, asyncio.Queue()

    async def execute(self, prompt, context, providers, tools, hooks, **more):
        if self.notify is None:
            self.notify = lambda: None
            self.coordinator.register_capability("conversation.panel", self)
            threading.Thread(target=self.hear, args=(asyncio.get_running_loop(),), daemon=True).start()
        while "answer" not in (told := await self.told.get()):
            if "ask" in told:
                answer = await self.coordinator.approval_system.request_approval(
                    told["ask"], ["Allow", "Deny"], 300, "deny"
                )
                told["text"] = f"answered {answer}"
            delta = {"request_id": "r", "block_index": 0, "block_type": "text", "sequence": 0, "text": told["text"]}
            await hooks.emit("llm:stream_block_delta", delta)
        return told["answer"]

    def hear(self, loop):
        for line in socket.create_connection(("127.0.0.1", self.port)).makefile():
            told = json.loads(line)
            if "panel" in told:
                self.lines = told["panel"]
                self.notify()
            else:
                loop.call_soon_threadsafe(self.told.put_nowait, told)

    def render(self, width, height):
        return [Text(each, style="red") for each in self.lines]

    def subscribe(self, notify):
        self.notify = notify
        return lambda: None


async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Foreman(coordinator, config["port"]))
'''
BUNDLE = """---
bundle: {{name: talk}}
session: {{orchestrator: {{module: loop-foreman, source: ./foreman.py, config: {{port: {port}}}}}}}
providers: [{{module: provider-playbook, config: {{otherwise: {{say: "ok"}}}}}}]
---
"""
PATIENCE = 30.0
RULE = "─" * 20


@pytest.fixture(autouse=True)
def tmux() -> None:
    """Need tmux: it shows what a person sees."""
    require("tmux")


class Foreman:
    """The other side of the loop."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.port = self._listening.getsockname()[1]
        self._loop: socket.socket | None = None

    def tell(self, *told: dict[str, Any]) -> None:
        """Tell the loop lines for its panel, pieces of its text, or its answer."""
        if self._loop is None:
            self._loop = self._listening.accept()[0]
        self._loop.sendall("".join(json.dumps(each) + "\n" for each in told).encode())

    def close(self) -> None:
        self._listening.close()
        if self._loop is not None:
            self._loop.close()


class Emulator:
    """A shell in a terminal of tmux."""

    def __init__(self, path: str, width: int, height: int) -> None:
        self._path = path
        shell = "env -u NO_COLOR LC_ALL=C.UTF-8 PS1='$ ' bash --norc"
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", str(width), "-y", str(height), shell)
        self.until(lambda rows: "$" in rows)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-S", self._path, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def run(self, *arguments: str, before: str = "") -> None:
        """Begin the program, as the person types it."""
        self.type(f"clear; {before} {sys.executable} -m amplifier_foundation {' '.join(arguments)}", "Enter")

    def type(self, text: str, *keys: str) -> None:
        """Type a text, then keys by their names."""
        if text:
            self._tmux("send-keys", "-l", text)
        if keys:
            self._tmux("send-keys", *keys)

    def rows(self, *, history: bool = False, styled: bool = False) -> list[str]:
        """Return what is on the screen, or what can be scrolled back to as well; `styled`: with codes for colours."""
        options = [*(["-S", "-"] if history else []), *(["-e"] if styled else [])]
        return [row.rstrip() for row in self._tmux("capture-pane", "-p", *options).split("\n")[:-1]]

    def until(self, holds: Callable[[list[str]], object]) -> list[str]:
        """Return the screen as soon as this holds of it."""
        ends = time.monotonic() + PATIENCE
        while not holds(rows := self.rows()):
            assert time.monotonic() < ends, "\n".join(rows)
        return rows

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def scrolls(self) -> tuple[int, int]:
        """Return the first and the last row of what scrolls."""
        first, last = self._tmux("display", "-p", "#{scroll_region_upper} #{scroll_region_lower}").split()
        return int(first), int(last)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def foreman(project: Path, home: Path) -> Iterator[Foreman]:
    foreman = Foreman()
    (project / "foreman.py").write_text(LOOP, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE.format(port=foreman.port), encoding="utf-8")
    yield foreman
    foreman.close()


@pytest.fixture
def emulate() -> Iterator[Callable[..., Emulator]]:
    """Opens terminals, which are closed with the test."""
    opened: list[Emulator] = []
    with TemporaryDirectory(prefix="tmux-") as folder:  # the path of a socket must be short

        def emulate(width: int = 120, height: int = 30) -> Emulator:
            opened.append(Emulator(f"{folder}/{len(opened)}", width, height))
            return opened[-1]

        yield emulate
        for each in opened:
            each.close()


def converse(terminal: Emulator, foreman: Foreman, *lines: str, arguments: str = "", before: str = "") -> None:
    """Have one turn of a conversation, in which the panel comes, and wait for the next prompt."""
    terminal.run("run", arguments, before=before)
    terminal.until(lambda rows: ">" in rows)
    terminal.type("go", "Enter")
    foreman.tell({"panel": list(lines)}, {"text": "I look"}, {"answer": "I look"})
    terminal.until(lambda rows: rows.count("I look") == 1 and ">" in rows)


def ends_with(*lines: str) -> Callable[[list[str]], bool]:
    """Return whether a screen ends with a line and these."""
    return lambda rows: rows[-len(lines) :] == list(lines) and rows[-len(lines) - 1].startswith(RULE)


def test_the_panel_comes_with_the_first_turn_and_a_typed_line_stays_whole(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    terminal.run("run")
    terminal.until(lambda rows: ">" in rows)
    terminal.type("go", "Enter")
    foreman.tell({"panel": ["issue 1: open", "issue 2: 你好 🎉 talks"]})
    terminal.until(ends_with("issue 1: open", "issue 2: 你好 🎉 talks"))
    foreman.tell({"answer": "I see."})
    terminal.until(lambda rows: "I see." in rows and ">" in rows)
    typed = ""
    for number in range(20):
        foreman.tell({"panel": [f"issue {number}: open", "issue 2: 你好 🎉 talks"]})
        terminal.type(f"word{number} ")
        typed += f"word{number} "
    rows = terminal.until(ends_with("issue 19: open", "issue 2: 你好 🎉 talks"))
    shown = terminal.until(lambda rows: "word19" in "".join(rows))
    assert f"> {typed.strip()}" in "".join(each.ljust(120) if each.startswith(">") else each for each in shown)
    assert [row for row in rows if row.startswith(RULE)] == [rows[-3]]
    assert terminal.scrolls() == (0, 26)


def test_a_panel_that_grows_makes_room_below_a_line_of_several_rows(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate(width=60)
    converse(terminal, foreman, "one")
    line = " ".join(f"word{number}" for number in range(20))
    terminal.type("\\\n" * 30 + line, "Home")
    terminal.until(lambda rows: "word19" in "".join(rows))
    foreman.tell({"panel": list("abcdef")})
    terminal.until(ends_with(*"abcdef"))
    terminal.type("first ")
    rows = terminal.until(lambda rows: "first" in "".join(rows))
    begins = next(at for at, row in enumerate(rows) if "first" in row)
    assert "".join(row.ljust(60) for row in rows[begins : begins + 3]).strip() == f". first {line}"
    assert begins + 3 == len(rows) - 7


def test_long_answers_scroll_above_the_panel_and_can_be_scrolled_back_to(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    converse(terminal, foreman, "working")
    terminal.type("more", "Enter")
    for number in range(60):
        foreman.tell({"text": f"- row {number}\n"}, {"panel": [f"at {number}"]})
    terminal.until(lambda rows: rows[-1] == "at 59" and "- row 59" in rows)
    foreman.tell({"answer": ""})
    terminal.until(lambda rows: rows[-3] == ">")
    text = terminal.rows(history=True)
    assert [row.split()[-1] for row in text if row.startswith(" • row")] == [str(number) for number in range(60)]
    assert sum(row.startswith(RULE) for row in text) == 1


def test_a_new_size_of_the_window_leaves_one_panel_and_the_typed_line(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    converse(terminal, foreman, "one", "two")
    terminal.type("half a line")
    for width, height in ((70, 20), (130, 40), (50, 33), (120, 12)):
        terminal.resize(width, height)
        rows = terminal.until(
            lambda rows, width=width: (
                ends_with("one", "two")(rows) and rows[-3] == "─" * width and "> half a line" in rows
            )
        )
        assert sum("─" in row for row in rows) == 1
        assert terminal.scrolls() == (0, height - 4)
    terminal.resize(120, 11)
    terminal.until(lambda rows: not any("─" in row for row in rows) and "> half a line" in rows)
    assert terminal.scrolls() == (0, 10)


def quit_by_command(terminal: Emulator) -> None:
    terminal.type("/quit", "Enter")


def press_ctrl_d(terminal: Emulator) -> None:
    terminal.type("", "C-d")


def press_ctrl_c_twice(terminal: Emulator) -> None:
    terminal.type("", "C-c")
    terminal.until(lambda rows: "(Ctrl-C again quits)" in rows)
    terminal.type("", "C-c")


def terminate(terminal: Emulator) -> None:
    terminal.type("", "C-u")
    os.kill(int(Path("pid").read_text()), signal.SIGTERM)


@pytest.mark.parametrize("leave", [quit_by_command, press_ctrl_d, press_ctrl_c_twice, terminate])
def test_leaving_gives_the_whole_terminal_back(
    emulate: Any, foreman: Foreman, leave: Callable[[Emulator], None]
) -> None:
    terminal = emulate()
    source = Path("foreman.py").read_text(encoding="utf-8")
    Path("foreman.py").write_text(f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{source}", encoding="utf-8")
    converse(terminal, foreman, "one", "two")
    terminal.until(ends_with("one", "two"))
    leave(terminal)
    rows = terminal.until(lambda rows: "$" in rows)
    assert "one" not in rows
    assert not any("─" in row for row in rows)
    assert terminal.scrolls() == (0, 29)


def test_a_suspended_conversation_leaves_the_terminal_and_comes_back_with_its_panel(
    emulate: Any, foreman: Foreman
) -> None:
    terminal = emulate()
    converse(terminal, foreman, "one", "two")
    terminal.until(ends_with("one", "two"))
    terminal.type("half", "C-z")
    rows = terminal.until(lambda rows: "$" in rows)
    assert not any("─" in row for row in rows)
    assert terminal.scrolls() == (0, 29)
    terminal.type("fg", "Enter")
    terminal.until(lambda rows: ends_with("one", "two")(rows) and rows.count("> half") == 2)
    terminal.type("", "C-a", "C-k")
    terminal.type("/quit", "Enter")
    terminal.until(lambda rows: any("amplifier run --resume" in row for row in rows) and rows[-1] == "")


def test_an_error_of_the_panel_costs_the_panel_alone(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    converse(terminal, foreman, "one")
    terminal.until(ends_with("one"))
    foreman.tell({"panel": [1]})
    terminal.until(lambda rows: not any("─" in row for row in rows))
    terminal.type("still here", "Enter")
    foreman.tell({"answer": "Yes."})
    rows = terminal.until(lambda rows: "Yes." in rows and rows.count(">") == 1)
    assert any(row.startswith("amplifier: the panel of this session failed: ") for row in rows)
    assert terminal.scrolls() == (0, 29)


@pytest.mark.parametrize(
    ("height", "arguments", "before"), [(11, "", ""), (30, "--quiet", ""), (30, "", "TERM=dumb")], ids=str
)
def test_small_quiet_and_dumb_terminals_have_no_panel(
    emulate: Any, foreman: Foreman, height: int, arguments: str, before: str
) -> None:
    terminal = emulate(height=height)
    terminal.run(arguments, "run", before=before)
    terminal.until(lambda rows: ">" in rows)
    terminal.type("go", "Enter")
    foreman.tell({"panel": ["one"]}, {"answer": "I look"})
    rows = terminal.until(lambda rows: "I look" in rows and ">" in rows)
    assert "one" not in rows
    assert terminal.scrolls() == (0, height - 1)


def test_a_question_is_answered_above_the_panel(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    converse(terminal, foreman, "one")
    terminal.type("ask", "Enter")
    foreman.tell({"ask": "Merge it?"})
    terminal.until(lambda rows: any("[1] Allow  [2] Deny" in row for row in rows))
    foreman.tell({"panel": ["two"]})
    terminal.until(ends_with("two"))
    terminal.type("1", "Enter")
    terminal.until(lambda rows: "answered Allow" in rows)
    foreman.tell({"answer": ""})


@pytest.mark.parametrize(("before", "colours"), [("", True), ("NO_COLOR=1", False)])
def test_without_colour_the_panel_is_plain(emulate: Any, foreman: Foreman, before: str, colours: bool) -> None:
    terminal = emulate()
    converse(terminal, foreman, "one", before=before)
    terminal.until(ends_with("one"))
    assert ("\x1b[31m" in terminal.rows(styled=True)[-1]) is colours


def test_text_of_others_steers_no_terminal_and_shows_no_secret(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate(width=40)
    hostile = ["\x1b[2Ja\tb\nc", "api_key=sk-ant-" + "a1B2" * 10, "你" * 40, "👩‍👩‍👧" * 30, "last"]
    converse(terminal, foreman, *hostile)
    rows = terminal.until(lambda rows: rows[-1] == "last")
    assert rows[-6] == "─" * 40
    assert rows[-5] == "\N{REPLACEMENT CHARACTER}[2Ja b c"
    assert rows[-4] == "api_key=[REDACTED]"
    assert rows[-3] == "你" * 19 + " …"


def test_what_is_typed_during_a_turn_is_seen_and_leaves_the_text_whole(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    terminal.run("run")
    terminal.until(lambda rows: ">" in rows)
    terminal.type("go", "Enter")
    foreman.tell({"text": "row 1\nrow 2\nrow 3"})
    terminal.until(lambda rows: "row 3" in rows)
    terminal.type("and thn", "BSpace", "Left")
    terminal.type("en")
    rows = terminal.until(lambda rows: "» and then" in rows)
    assert rows[rows.index("» and then") - 1] == "row 3"
    terminal.type("", "Enter")
    terminal.until(lambda rows: "» and then (runs after this turn)" in rows)
    terminal.type("lost", "C-u")
    terminal.type("next")
    terminal.until(lambda rows: "» next" in rows)
    foreman.tell({"text": "\nrow 4"}, {"answer": "row 1\nrow 2\nrow 3\nrow 4"})  # the next prompt is taken
    foreman.tell({"text": "second"}, {"answer": "second"})
    terminal.until(lambda rows: "> next" in rows)
    shown = [row for row in terminal.rows(history=True) if row.startswith("row")]
    assert shown == ["row 1", "row 2", "row 3", "row 4"]
    terminal.type(" time", "Enter")
    foreman.tell({"text": "third"}, {"answer": "third"})
    terminal.until(lambda rows: "third" in rows and ">" in rows)
    assert "> next time" in terminal.rows()


def test_a_stop_forgets_what_was_typed_and_gives_the_terminal_back(emulate: Any, foreman: Foreman) -> None:
    terminal = emulate()
    terminal.run("run")
    terminal.until(lambda rows: ">" in rows)
    terminal.type("go", "Enter")
    foreman.tell({"text": "a word"})
    terminal.until(lambda rows: "a word" in rows)
    terminal.type("a prompt", "Enter")
    terminal.type("begun")
    terminal.until(lambda rows: "» begun" in rows)
    terminal.type("", "C-c")
    terminal.until(lambda rows: any("Ctrl-C again" in row for row in rows))
    terminal.type("", "C-c")
    terminal.until(lambda rows: any("stopping now" in row for row in rows))
    terminal.until(lambda rows: ">" in rows)
    terminal.type("/quit", "Enter")
    terminal.until(lambda rows: "$" in rows)
    terminal.type("stty -a | grep -cE ' -(icanon|echo) '", "Enter")
    terminal.until(lambda rows: "0" in rows)
