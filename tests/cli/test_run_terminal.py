"""`amplifier run` at a terminal that can move its cursor: text as it comes, Markdown, a sign of life, the cost."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.file_proxy import FileProxy

from amplifier_foundation.cli import exits
from amplifier_foundation.cli.consoles import QuietCursor
from amplifier_foundation.cli.running import live
from amplifier_foundation.cli.running.live import LiveTerminal, OurMarkdown, find_last_block

PROVIDER = '''
import asyncio
import json
from decimal import Decimal

from amplifier_core.message_models import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage


class Puppet:
    """Emits and answers what a server says, a line of JSON for each event and for the response."""

    name = "puppet"

    def __init__(self, coordinator, port):
        self.coordinator, self.port = coordinator, port

    async def complete(self, request, **kwargs):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            while True:
                told = json.loads(await reader.readline())
                if "answer" in told:
                    break
                await self.coordinator.hooks.emit(told.pop("event"), {"request_id": "r", **told})
        finally:
            writer.close()
        cost = told.get("cost")
        usage = Usage(input_tokens=1200, output_tokens=34, total_tokens=1234, cost_usd=cost and Decimal(cost))
        blocks = [TextBlock(text=told["answer"])] if told["answer"] else []
        calls = [ToolCall(id="1", name=name, arguments=input) for name, input in told.get("calls", {}).items()]
        blocks += [ToolCallBlock(id=each.id, name=each.name, input=each.arguments) for each in calls]
        return ChatResponse(content=blocks, tool_calls=calls or None, usage=usage)

    def parse_tool_calls(self, response):
        return response.tool_calls or []


async def mount(coordinator, config):
    await coordinator.mount("providers", Puppet(coordinator, config["port"]))
'''
BUNDLE = """---
bundle: {{name: talk}}
session: {{orchestrator: loop-streaming}}
providers:
  - {{module: provider-puppet, source: ./puppet.py, config: {{port: {port}}}}}
tools:
  - {{module: tool-filesystem}}
  - {{module: wait, source: ./modules/wait.py}}
hooks:
  - {{module: ask, source: ./modules/ask.py}}
---
"""
ANSWER = """# Title

I read **both**:
`a` and <b>.

- one
- two

```python
x = 1

y = 2
```

Done."""
CLEARED = re.compile(r"\x1b\[2K")


class Puppeteer:
    """The other side of the provider: one request at a time."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(120)
        self.port = self._listening.getsockname()[1]
        self._requests: list[socket.socket] = []

    def asked(self) -> None:
        """Wait for the next request."""
        self._requests.append(self._listening.accept()[0])

    def tell(self, **told: Any) -> None:
        """Have the provider emit an event, or answer."""
        self._requests[-1].sendall(json.dumps(told).encode() + b"\n")

    def block(self, index: int, kind: str, *pieces: str, **more: Any) -> None:
        """Stream the beginning of a block, and pieces of it."""
        place = {"block_index": index, "block_type": kind}
        self.tell(event="llm:stream_block_start", **place, **more)
        for sequence, piece in enumerate(pieces):
            self.tell(event="llm:stream_block_delta", **place, sequence=sequence, text=piece)

    def close(self) -> None:
        for each in (*self._requests, self._listening):
            each.close()


@pytest.fixture
def model(project: Path, modules: Path, home: Path) -> Iterator[Puppeteer]:
    model = Puppeteer()
    (project / "puppet.py").write_text(PROVIDER, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE.format(port=model.port), encoding="utf-8")
    yield model
    model.close()


def test_text_comes_at_once_and_becomes_markdown_with_signs_of_life_and_the_cost(terminals: Any, model: Any) -> None:
    person = terminals("run", "go", term="xterm-256color")
    model.asked()
    person.until(r"[⠀-⣿] 1 s")
    model.block(0, "thinking", "hm")
    person.until(r"[⠀-⣿] thinking, 0 s")
    model.block(1, "text", "I look", " at **both**")
    person.until(r"I look at \*\*both\*\*")
    model.block(2, "tool_use", name="wait")
    shown = person.until(r"[⠀-⣿] wait, 0 s")
    assert "I look at \x1b[1mboth\x1b[0m" in shown
    Path("go").touch()
    model.tell(answer="I look at **both**", calls={"wait": {"what": "godot"}}, cost="0.0021")
    assert "I look" not in person.until("→ wait godot")
    model.asked()
    model.block(0, "text", *re.findall(r"(?s).{1,5}", ANSWER))
    shown = person.until(r"Done\.")
    assert "I read \x1b[1mboth\x1b[0m:" in shown
    assert "a\x1b[0m and <b>." in shown
    assert " • " in shown
    model.tell(answer=ANSWER, cost="0.0021")
    shown = person.until(r"2,400 tokens in, 68 out; \$0\.0042; [\d.]+ s\n")
    assert "Title" not in shown
    person.until(r"session talk-\w+\n")
    assert person.ended() == exits.OK


def test_a_cost_that_nobody_knows_is_unknown_and_each_turn_has_its_own(terminals: Any, model: Any) -> None:
    person = terminals("run", term="xterm-256color")
    person.until(r"> \Z")
    for _ in range(2):
        person.type("go\n")
        model.asked()
        model.tell(answer="*whole*")
        assert "\x1b[3mwhole\x1b[0m" in person.until(r"1,200 tokens in, 34 out; cost unknown; [\d.]+ s\n")
        person.until(r"> \Z")


def test_a_question_and_a_stop_find_a_quiet_terminal(terminals: Any, model: Any, project: Path) -> None:
    person = terminals("run", term="xterm-256color")
    person.until(r"> \Z")
    person.type("write\n")
    model.asked()
    model.tell(answer="", calls={"write_file": {"file_path": "hello.txt", "content": "hello"}})
    shown = person.until("Enter: Deny, 300 s")
    assert CLEARED.search(shown[shown.index("→ write_file") :])
    person.type("1\n")
    model.asked()
    assert (project / "hello.txt").read_text(encoding="utf-8") == "hello"
    model.block(0, "text", "Once *upon*")
    person.until(r"Once \*upon\*")
    person.type("\x03")
    shown = person.until(r"> \Z")
    assert "stopping after this step" in shown
    assert "Once \x1b[3mupon\x1b[0m" in shown
    assert shown.rindex("amplifier: stopped") > shown.rindex("upon")


def test_into_a_pipe_comes_the_answer_alone_as_it_is(amplifier: Any, model: Any) -> None:
    from threading import Thread

    def answer() -> None:
        model.asked()
        model.block(0, "text", ANSWER)
        model.tell(answer=ANSWER)

    thread = Thread(target=answer)
    thread.start()
    done = amplifier("run", "go")
    thread.join()
    assert (done.returncode, done.stdout) == (exits.OK, ANSWER + "\n")
    assert re.fullmatch(r"session talk-\w+\n", done.stderr)


TEXTS = [
    ANSWER,
    "a\n\nb\n\n\nc\n",
    "1. one\n\n   more of it\n\n2. two\n   - below\n\nend",
    "> quoted\nlazily\n\n    code\n\n    more code\n\n***\n\n| a |\n|---|\n| 1 |\n",
    "Title\n===\n\n~~~\n\n# no title\n~~~\n",
    "\n\n  \nfirst\n\n<div>\n\ntext\n",
    "no end of line",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_blocks_of_a_text_on_its_way_are_the_blocks_of_the_whole(text: str, size: int) -> None:
    printed, rest = [], ""
    for at in range(0, len(text), size):
        rest += text[at : at + size]
        end = find_last_block(rest)
        if end:
            printed.append(rest[:end])
            rest = rest[end:]
    assert "".join([*printed, rest]) == text
    parsed = [token for part in (*printed, rest) for token in OurMarkdown(part).parsed]
    assert [(each.type, each.content) for each in parsed] == [
        (each.type, each.content) for each in OurMarkdown(text).parsed
    ]


def test_lines_typed_while_the_model_answers_steer_the_turn(terminals: Any, model: Any) -> None:
    person = terminals("run", term="xterm-256color")
    person.until(r"> ")
    person.type("go\n")
    model.asked()
    model.block(0, "text", "I change the tests")
    person.until("I change the tests")
    person.type("leave the tests alone\n")
    person.until(r"» leave the tests alone \(the turn takes it in\)")
    person.type("/cost\n")
    person.until(r"» /cost \(runs after this turn\)")
    model.tell(answer="I change the tests")
    model.asked()
    model.block(0, "text", "I leave them alone.")
    model.tell(answer="I leave them alone.")
    person.until(r"I leave them alone\.")
    person.until("2 requests of this session")
    person.until(r"> ")
    person.type("/quit\n")
    assert person.ended() == exits.OK


def test_a_signal_that_ends_a_turn_leaves_a_terminal_that_prints_keys(terminals: Any, model: Any) -> None:
    person = terminals("run", term="xterm-256color")
    person.until(r"> ")
    person.type("go\n")
    model.asked()
    model.block(0, "text", "I change the tests")
    person.until("I change the tests")
    assert not person.prints_keys()
    person.signal(signal.SIGTERM)
    assert person.ended() == -signal.SIGTERM
    assert person.prints_keys()


def test_a_question_of_a_hook_gets_the_line_that_is_typed_for_it(terminals: Any, model: Any) -> None:
    person = terminals("run", term="xterm-256color")
    person.until(r"> ")
    person.type("go\n")
    model.asked()
    model.tell(answer="", calls={"write_file": {"file_path": "a.txt", "content": "a"}})
    person.until(r"\(Enter: .*\) ")
    person.type("deny\n")
    model.asked()
    person.type("and now?\n")
    person.until(r"» and now\? \(the turn takes it in\)")
    model.tell(answer="It is denied.")
    model.asked()
    model.tell(answer="Nothing more.")
    person.until(r"Nothing more\.")
    assert not Path("a.txt").exists()


def test_a_piece_of_text_after_a_pause_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESHES", 1 / 3600)
    terminal, out = LiveTerminal(), io.StringIO()
    terminal.console = QuietCursor(file=out, force_terminal=True)
    terminal._drawn -= 3600
    terminal.wait("")
    terminal.add("first", 0)
    assert "first" in out.getvalue()
    terminal.add(" second", 0)
    assert "second" not in out.getvalue()  # it waits for the next drawing
    assert terminal.finish() == "first second"
    assert "first second" in out.getvalue()


def test_what_is_printed_and_what_moves_never_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESHES", 1000)
    monkeypatch.setenv("TERM", "xterm-256color")
    switches = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    terminal, out = LiveTerminal(), io.StringIO()
    terminal.console = QuietCursor(file=out, force_terminal=True, width=80, height=500)
    notes = FileProxy(terminal.console, out)  # as stderr is, beside something that moves
    blocks = [f"```\nblock {number}\nof code\n```\n\nAfter {number}.\n\n" for number in range(40)]
    for block in blocks:
        for piece in block.splitlines(keepends=True):
            terminal.add(piece, 0)
            notes.write("a note\n")
    terminal.finish()
    terminal.pause()
    sys.setswitchinterval(switches)
    shown = [line for number in range(40) for line in (f"block {number}", "of code", f"After {number}.")]
    rows = rows_of(out.getvalue())
    assert [line for line in rows if line not in ("", "a note")] == shown
    assert rows.count("a note") == 40 * len(blocks[0].splitlines())


def test_what_has_not_changed_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESHES", 1000)
    terminal, out, looks, is_seen = LiveTerminal(), io.StringIO(), count(1), Event()
    terminal.console = QuietCursor(file=out, force_terminal=True)

    class Still:
        def __rich__(self) -> str:
            if next(looks) == 20:
                is_seen.set()
            return "still"

    terminal._draw(Still())
    assert is_seen.wait(60)
    assert out.getvalue() == "still"
    terminal.pause()
    assert rows_of(out.getvalue()) == [""]


def test_what_is_written_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESHES", 1 / 3600)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal, out = LiveTerminal(), io.StringIO()
    terminal.console = QuietCursor(file=out, force_terminal=True, width=40, height=100)
    words = [f"word{number}" for number in range(300)]
    for each in words:
        terminal._drawn -= 3600  # it comes after a pause
        terminal.add(f"{each} ", 0)
    rows = rows_of(out.getvalue())
    assert " ".join(rows).split() == words
    assert len(rows) > 50
    assert len(out.getvalue()) < 2 * len(" ".join(words))
    terminal.show_typing("and")
    terminal.show_typing("and now")
    terminal._drawn -= 3600
    terminal.add("end", 0)
    assert rows_of(out.getvalue())[-2:] == [f"{rows[-1]} end", "» and now"]
    terminal.pause()
    assert not any(rows_of(out.getvalue()))


def test_rows_of_before_a_suspension_are_left_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESHES", 1 / 3600)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal, out = LiveTerminal(), io.StringIO()
    terminal.console = QuietCursor(file=out, force_terminal=True, width=40, height=100)
    terminal._drawn -= 3600
    terminal.add("- one\n- two\n- th", 0)
    for more in ("ree", "\n- four"):
        out.write("\nsh> fg\n")
        assert terminal._live is not None
        terminal._live._looked -= 7200  # suspended so long
        terminal._drawn -= 3600
        terminal.add(more, 0)
    out.write("\nsh> fg\n")
    terminal._live._looked -= 7200
    terminal.pause()
    one, two = ["- one", "- two"], ["sh> fg", "- one", "- two", "- three"]
    assert rows_of(out.getvalue()) == [*one, "- th", *two, *two, "- four", "sh> fg", ""]


def test_a_job_in_the_background_moves_no_cursor(model: Any) -> None:
    side, other = pty.openpty()
    job = f"{sys.executable} -m amplifier_foundation run go & wait $!; echo code $?"
    begin = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('bash', sys.argv[1:])"
    streams = {"stdin": other, "stdout": other, "stderr": other, "start_new_session": True}
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    with subprocess.Popen([sys.executable, "-c", begin, "bash", "-mc", job], **streams, env=environment) as process:
        model.asked()
        model.block(0, "text", "Once *upon*", " a time.\n\nThen")
        model.tell(answer="Once *upon* a time.\n\nThen")
        shown = ""
        while not re.search(r"code \d+\r\n", shown):
            shown += os.read(side, 65536).decode()
        assert process.wait(60) == 0
    os.close(side)
    os.close(other)
    assert re.search(r"Once upon a time\. *\r\n\r\nThen *\r\n", re.sub(r"\x1b\[[0-9;]*m", "", shown))
    assert re.findall(r"\x1b\[[0-9;]*[^0-9;m]|\r(?!\n)", shown) == []
    assert "code 0" in shown


def rows_of(written: str) -> list[str]:
    """Return the rows of a high screen after this was written to it; nothing is as wide as the screen."""
    rows, row, column = [""], 0, 0
    for code, end, text in re.findall(r"\x1b\[([0-9;]*)([A-Za-z])|([^\x1b\r\n]+|[\r\n])", written):
        if end == "A":
            row -= int(code or 1)
        elif end == "K":
            rows[row] = ""
        elif text == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif text == "\r":
            column = 0
        elif text:
            rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + len(text) :]
            column += len(text)
    return [each.strip() for each in rows]
