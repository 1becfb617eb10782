"""Go through README.md from top to bottom as a reader does: each block in order, at a terminal and in a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits
from amplifier_storage_sqlite import open_sqlite

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
BIN = Path(sys.executable).parent
STYLE = re.compile(r"\x1b\[[0-9;]*m")
MOVE = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
"""The table of `up` is drawn again and again below the lines."""
PATIENCE = 60.0
"""Seconds that one command may take."""

MODEL = """
  - module: provider-playbook
    config:
      delay_ms: 2000
      rules:
        - {when: {user: '(?P<path>[a-z]+\\.py)'}, call: {tool: read_file, input: {file_path: "{path}"}}}
        - when: {tool: read_file}
          call: {tool: write_file, input: {file_path: REVIEW.md, content: "# Review"}}
        - {when: {tool: write_file}, say: "{path}, line 1: the bracket is never closed."}
      otherwise: {say: "You said: {prompt}"}"""
"""Stands in for the real model: slow enough to be killed in the middle."""

STAND_INS = {
    r"^make (?=demo|test)": f"make -C {ROOT} --dry-run ",  # tests of their own run both
    r"^(pip|pipx|uv) .*": "true",  # tests/packaging runs them
    r"^\. \.venv/bin/activate": "test -x $(command -v amplifier)",
    r'^(?=amplifier run "What is in)': "amplifier auth logout anthropic && ",  # the playbook answers instead
}
"""What stands in for commands that need a network, a real key or the checkout."""
TYPED = {"amplifier auth login anthropic": "key-of-the-readme\n"}
"""What a reader types at the prompt of a command, or pipes into it."""
UNTIL = {"amplifier logs -f reviewer": "✓ reviewer"}
"""What a reader waits for before Ctrl-C."""


class Reader:
    """Somebody who types what the README says, at a terminal or into a shell without one."""

    def __init__(self, folder: Path, home: Path, *, has_terminal: bool) -> None:
        self.folder, self.home, self.has_terminal = folder, home, has_terminal
        kept = {name: value for name, value in os.environ.items() if name not in ("AMPLIFIER_TRUST", "CI")}
        self.environment = {
            **kept, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "200"
        }  # fmt: skip

    def type(self, command: str) -> str:
        """Run a command and return what it prints; fail when it fails."""
        for pattern, instead in STAND_INS.items():
            command = re.sub(pattern, instead, command)
        if "PID" in command:
            command = command.replace("PID", str(self._find_busy_process()))
        if re.search(r"\bID\b", command):
            command = re.sub(r"\bID\b", self._find_session(), command)
        typed, until = TYPED.get(command, ""), UNTIL.get(command)
        mine, theirs = pty.openpty() if self.has_terminal else os.pipe()
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs if self.has_terminal else subprocess.PIPE,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            if process.stdin is not None:
                process.stdin.write(typed.encode())
                process.stdin.close()
                typed = ""
            shown = self._read(mine, process, typed, until)
            os.close(mine)
            code = process.wait(PATIENCE)
        assert code == (exits.INTERRUPTED if until else exits.OK), f"{command}: exit code {code}\n{shown}"
        return shown

    def _read(self, mine: int, process: subprocess.Popen[bytes], typed: str, until: str | None) -> str:
        """Return what is shown until the command ends; type at its prompt, and interrupt it when `until` is shown."""
        shown, ends = "", time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            ready, _, _ = select.select([mine], [], [], 0.1)
            try:
                read = os.read(mine, 65536) if ready else b""
            except OSError:  # nobody is at the other side of the terminal
                return shown
            shown += read.decode(errors="replace")
            if typed and shown.endswith(": "):
                os.write(mine, typed.encode())
                typed = ""
            if until and until in STYLE.sub("", shown):
                os.killpg(process.pid, signal.SIGINT)
                until = None
            if not read and (ready or process.poll() is not None):
                return shown
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"it does not end: {shown}")

    def _list_reviews(self) -> list[dict[str, Any]]:
        listed = json.loads(self._ask("amplifier session list --json"))["data"]
        return [each for each in listed if each["session_id"].startswith("reviewer-")]

    def _find_session(self) -> str:
        return str(self._list_reviews()[0]["session_id"])

    def _find_busy_process(self) -> int:
        """Return the process of `up` once it has stored a session for the file that was written last."""
        process = int(json.loads(self._ask("amplifier ps --json"))["data"]["processes"][0]["pid"])
        log, ends = self.home / "logs" / "up.log", time.monotonic() + PATIENCE
        while "→ read_file" not in log.read_text(encoding="utf-8").partition("file other.py")[2]:
            assert time.monotonic() < ends, log.read_text(encoding="utf-8")
            time.sleep(0.01)
        while not asyncio.run(self._is_at_work()):
            assert time.monotonic() < ends, self._list_reviews()
            time.sleep(0.01)
        return process

    async def _is_at_work(self) -> bool:
        """Return whether a session that reviews has messages; a command would tell it when the session has ended."""
        store = open_sqlite({"folder": self.home})
        found = await store.find("reviewer-")
        await store.close()
        return any(each.status == "running" and each.message_count for each in found)

    def _ask(self, command: str) -> str:
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True
        ).stdout


def normal(text: str, folder: Path) -> list[str]:
    """Return the lines without what differs from run to run."""
    text = MOVE.sub("\n", STYLE.sub("", text)).replace("\r", "").replace(str(folder), "/home/ann/reviews")
    for pattern, shown in (
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"-[0-9a-f]{12}\b", "-ID"),
        (r"(?<= reviewer     )[0-9a-f]{4}\b", "TAG"),
        (r"\b\d+(\.\d+)? s\b", "SECONDS"),
    ):
        text = re.sub(pattern, shown, text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("has_terminal", [True, False], ids=["at a terminal", "in a pipe"])
def test_every_block_works_in_order(has_terminal: bool, project: Path, home: Path) -> None:
    reader = Reader(project, home, has_terminal=has_terminal)
    try:
        for kind, text in BLOCKS:
            if kind == "markdown":
                model = text.replace(" [{module: provider-anthropic}]", MODEL)
                (project / "bundle.md").write_text(model, encoding="utf-8")
            if kind != "console":
                continue
            for command, *shown in (each.splitlines() for each in re.split(r"^\$ ", text, flags=re.M)[1:]):
                printed = normal(reader.type(command), project)
                missing = [line for line in normal("\n".join(shown), project) if line not in printed]
                assert missing == [], f"{command}\n" + "\n".join(printed)
        assert (project / "REVIEW.md").is_file()
    finally:
        subprocess.run(["bash", "-c", "amplifier stop --all"], cwd=project, env=reader.environment, check=False)


def test_the_part_that_is_read_from_top_to_bottom_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    [first] = [text for kind, text in BLOCKS if kind == "markdown"]
    assert len(first.splitlines()) <= 15
