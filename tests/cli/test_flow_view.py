"""The view of a running workflow: a tree in place at a terminal, and lines elsewhere."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from amplifier_foundation.cli import exits
from amplifier_foundation.cli.flow_view import FlowView
from amplifier_foundation.flows.journal import Entry
from amplifier_foundation.flows.tasks import Loop, Parallel, Sequence, Task, Workflow

BUNDLE = """---
bundle: {name: work}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {tool: wait}, say: held}
        - {when: {user: '^hold'}, call: {tool: wait, input: {what: it}}}
        - {when: {tool: write_file}, say: written}
        - {when: {user: '^write'}, call: {tool: write_file, input: {file_path: a.txt, content: hello}}}
      otherwise: {say: "You said: {prompt}"}
tools: [{module: wait, source: ./modules/wait.py}, {module: tool-filesystem}]
hooks: [{module: ask, source: ./modules/ask.py}]
permissions: {allow: [wait]}
workflows:
  chain:
    steps:
      - {id: one, agent: self, prompt: one}
      - {id: two, agent: self, prompt: hold, fork: one}
      - {id: three, agent: ./gone.md, prompt: three}
  asks:
    steps:
      - {id: ask, agent: self, prompt: write}
---
You work.
"""
CLEARED = re.compile(r"\x1b\[2K")
FIXED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(view: FlowView, width: int = 80, height: int = 25) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=False).print(view)
    return out.getvalue().splitlines()


def flow() -> Workflow:
    body = Sequence(Task("mend", agent="coder", prompt="x", fork="plan"), Task("test", agent="self", prompt="x"))
    sides = Parallel(Task("left", value=1), Task("right", value=2))
    return Workflow("work", Sequence(Task("plan", agent="self", prompt="x"), sides, Loop(body, "test.done", 3)))


def test_a_tree_shows_what_runs_since_when_and_in_which_iteration() -> None:
    seconds = Seconds()
    view = FlowView(flow(), [Entry("plan", "plan", "completed", attempts=2)], quiet=True, clock=seconds)
    for key in ("left", "mend#1", "test#1"):
        view.report(key, None)
        seconds.now += 2
        view.report(key, Entry(key, key.partition("#")[0], "completed"))
    assert shown(view)[-3:] == [
        "   ├─ ✓ mend 2.0 s (agent coder; forks plan)",
        "   └─ ✓ test 2.0 s (agent self)",
        "4 of 5 done, 6 s",
    ]
    view.report("mend#2", None)
    view.report("mend#2", None)
    seconds.now += 3
    view.report("right", Entry("right", "right", "failed"))
    assert shown(view) == [
        "├─ ✓ plan (agent self)",
        "├─ side by side",
        "│  ├─ ✓ left 2.0 s (value)",
        "│  └─ ✗ right (value)",
        "└─ iteration 2: again until test.done, at most 3 times",
        "   ├─ ▶ mend 3 s, attempt 2 (agent coder; forks plan)",
        "   └─ · test (agent self)",
        "2 of 5 done, 1 running, 1 failed, 9 s",
    ]
    assert max(map(len, shown(view, width=30))) <= 30


def test_a_tree_that_is_too_tall_shows_what_runs_and_has_failed() -> None:
    tasks = [Task(f"t{number}", agent="self", prompt="x") for number in range(200)]
    view = FlowView(Workflow("many", Parallel(*tasks)), quiet=True, clock=Seconds())
    for number in range(30):
        view.report(f"t{number}", None)
    for number in range(28):
        view.report(f"t{number}", Entry(f"t{number}", f"t{number}", "failed" if number == 5 else "completed"))
    assert shown(view) == [
        "✗ t5 0.0 s (agent self)",
        "▶ t28 0 s (agent self)",
        "▶ t29 0 s (agent self)",
        "27 of 200 done, 2 running, 1 failed, 0 s",
    ]
    for number in range(30, 100):
        view.report(f"t{number}", None)
    assert len(shown(view)) <= 25


def test_text_of_a_bundle_cannot_steer_the_terminal() -> None:
    task = Task("a", agent="\x1b[2J sk-" + "a1" * 20, prompt="x")
    text = "\n".join(shown(FlowView(Workflow("w", Loop(task, "\x1b]0;owned\x07 == 1")), quiet=True)))
    assert not set(text) & {"\x1b", "\x07"}
    assert "a1a1" not in text


@pytest.fixture
def folder(project: Path, modules: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    monkeypatch.delenv("CI", raising=False)
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    return project


def test_at_a_terminal_the_tree_is_drawn_in_place_until_a_task_fails(folder: Path, terminals: Any) -> None:
    person = terminals("flow", "run", "chain", term="xterm-256color", colour=True)
    person.until(r"two\S* 1 s")
    (folder / "go").touch()
    text = person.until(r"Go on with: amplifier flow resume chain-\w+\n")
    assert person.ended() == exits.FAILED
    assert CLEARED.search(text)
    last = FIXED.sub("", text[text.rindex("\x1b[2K") :]).splitlines()
    assert [re.sub(r"[\d.]+ s", "N s", line) for line in last[:4]] == [
        "├─ ✓ one N s (agent self)",
        "├─ ✓ two N s (agent self; forks one)",
        "└─ ✗ three N s (agent ./gone.md)",
        "2 of 3 done, 1 failed, N s",
    ]
    assert last[4].startswith("amplifier: TASK_FAILED: task 'three'")


def test_ctrl_c_leaves_the_terminal_clean(folder: Path, terminals: Any) -> None:
    person = terminals("flow", "run", "chain", term="xterm-256color", colour=True)
    person.until(r"two\S* 1 s")
    person.type("\x03")
    text = person.until("interrupted\n")
    assert person.ended() == exits.INTERRUPTED
    assert "· two" in FIXED.sub("", text[text.rindex("\x1b[2K") :])
    assert "\x1b[?25l" not in text


def test_a_question_finds_a_quiet_terminal(folder: Path, terminals: Any) -> None:
    person = terminals("flow", "run", "asks", term="xterm-256color", colour=True)
    asked = person.until("Enter: Deny")
    assert "▶" not in asked[asked.rindex("\x1b[2K") :]
    person.type("1\n")
    answered = FIXED.sub("", person.until("ask: written\n"))
    assert "1 of 1 done" in answered
    assert person.ended() == exits.OK
    assert (folder / "a.txt").read_text(encoding="utf-8") == "hello"


@pytest.mark.parametrize("options", [{"term": "dumb", "colour": True}, {"term": "xterm-256color"}])
def test_a_terminal_that_cannot_or_shall_not_move_gets_lines(folder: Path, terminals: Any, options: Any) -> None:
    (folder / "go").touch()
    person = terminals("flow", "run", "chain", **options)
    text = person.until(r"three: failed\n")
    assert "\x1b" not in text
    lines = ["one: begins", "one: completed", "two: begins", "begun it", "two: completed", "three: begins"]
    assert text.splitlines() == [*lines, "three: failed"]
