"""Prints of modules, and of programs that they start, beside the output of a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits
from tests import forks

TALKATIVE = """
import os
import subprocess


class Talkative:
    name = "talk"
    description = "Print."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        print("printed by the tool")
        os.write(1, b"written by the tool\\n")
        subprocess.run(["echo", "printed by its program"])
        return {"ok": True}


async def mount(coordinator, config):
    async def hear(event, data):
        print("printed by a hook")

    coordinator.hooks.register("provider:request", hear, name="hear")
    await coordinator.mount("tools", Talkative())
"""
BUNDLE = """---
bundle: {name: talkative}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^talk'}, call: {tool: talk, input: {}}}
        - {when: {tool: talk}, say: "done"}
tools: [{module: talkative, source: ./modules/talkative.py}]
workflows: {all: {steps: [{id: one, agent: self, prompt: talk}]}}
---
Answer.
"""
PROVIDER = """
from amplifier_core.message_models import ChatResponse, TextBlock
from amplifier_core.models import ProviderInfo


class Loud:
    name = "loud"

    def get_info(self):
        return ProviderInfo(id="loud", display_name="Loud")

    async def list_models(self):
        print("printed by the provider")
        return []

    async def complete(self, request, **kwargs):
        print("printed by the provider")
        return ChatResponse(content=[TextBlock(text="OK")])

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", Loud())
"""
PRINTED = ("printed by the tool", "written by the tool", "printed by its program", "printed by a hook")


@pytest.fixture(autouse=True)
def bundle(project: Path, modules: Path, home: Path) -> None:
    (modules / "talkative.py").write_text(TALKATIVE, encoding="utf-8")
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def read_object(out: str) -> Any:
    return json.loads(out)["data"]


@pytest.mark.parametrize(
    ("command", "read", "wanted"),
    [
        ("run talk", str, "done\n"),
        ("run --json talk", lambda out: read_object(out)["output"], "done"),
        ("run --jsonl talk", lambda out: [json.loads(line) for line in out.splitlines()][-1]["output"], "done"),
        ("flow run all --json", lambda out: read_object(out)["outputs"], {"one": "done"}),
        ("flow run all", str, "one: done\n"),
    ],
)
def test_what_modules_print_is_no_part_of_the_output(command: str, read: Any, wanted: Any) -> None:
    done = forks.run(command.split())
    assert done.returncode == exits.OK, done.stderr
    assert read(done.stdout) == wanted
    assert all(text in done.stderr for text in PRINTED)


def test_a_replayed_turn_prints_its_outputs_alone(project: Path) -> None:
    assert forks.run(["session", "record", "recorded", "talk"]).stdout == "done\n"
    done = forks.run(["session", "replay", "recorded", "--run-tools", "--json"])
    assert [each["output"] for each in read_object(done.stdout)["turns"]] == ["done"]


@pytest.mark.parametrize("verb", ["test", "models"])
def test_what_a_provider_prints_is_no_part_of_what_is_told_about_it(verb: str, project: Path, modules: Path) -> None:
    (modules / "loud.py").write_text(PROVIDER, encoding="utf-8")
    entry = "{module: provider-loud, source: ./modules/loud.py}"
    (project / "bundle.md").write_text(f"---\nbundle: {{name: b}}\nproviders: [{entry}]\n---\nAnswer.\n")
    done = forks.run(["provider", verb, "--json"])
    assert done.returncode == exits.OK, done.stderr
    assert read_object(done.stdout)["provider"] == "loud"
    assert "printed by the provider" in done.stderr


def test_a_warning_of_a_module_is_one_line_of_the_log_without_secrets(project: Path, modules: Path) -> None:
    code = TALKATIVE.replace(
        'print("printed by the tool")', 'warnings.warn("old\\x1b[2J key sk-ant-api03-' + "a" * 90 + '")'
    )
    (modules / "talkative.py").write_text("import warnings\n" + code, encoding="utf-8")
    done = forks.run(["run", "talk"])
    told = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert (
        len(told) == 1 and told[0].startswith("amplifier: WARNING: ") and "talkative.py:13: UserWarning: old" in told[0]
    )
    assert "\x1b" not in done.stderr and "sk-ant" not in done.stderr and "warnings.warn" not in done.stderr
    assert "UserWarning" not in forks.run(["-q", "run", "talk"]).stderr


ODD = """
import gc, io, subprocess, sys


class Odd:
    name = "talk"
    description = "Print."
    input_schema = {{"type": "object", "properties": {{}}}}

    async def execute(self, input):
{body}
        return {{"ok": True}}


async def mount(coordinator, config):
    await coordinator.mount("tools", Odd())
"""


def set_tool(modules: Path, body: str) -> None:
    """Let the tool of the bundle do something odd with stdout."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (modules / "talkative.py").write_text(ODD.format(body=lines), encoding="utf-8")


@pytest.mark.parametrize(
    "body",
    [
        "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8'); print('printed')",
        "wrapped = io.TextIOWrapper(sys.stdout.buffer); wrapped.write('printed'); del wrapped; gc.collect()",
        "sys.stdout.buffer.write(b'printed'); sys.stdout.close()",
        "sys.stdout.reconfigure(encoding='ascii', errors='strict'); print('printed'); print('ü', file=sys.stderr)",
        "sys.stdout.writelines(['printed'])",
    ],
)
def test_what_a_module_does_to_stdout_does_not_reach_stderr_itself(body: str, modules: Path) -> None:
    set_tool(modules, body)
    done = forks.run(["run", "talk"])
    assert (done.returncode, done.stdout) == (exits.OK, "done\n"), done.stderr
    assert "printed" in done.stderr
    assert "Error" not in done.stderr
    assert "session talkative-" in done.stderr


def test_no_print_of_a_tool_fails_where_stderr_takes_nothing(modules: Path) -> None:
    set_tool(modules, "print('printed', flush=True); sys.stdout.writelines(['printed'])")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        process = forks.Popen(["run", "--jsonl", "talk"], stdout=subprocess.PIPE, stderr=full, text=True)
        out, _ = process.communicate(timeout=120)
    results = [fact for line in out.splitlines() if (fact := json.loads(line))["type"] == "tool_result"]
    assert [each["ok"] for each in results] == [True], out


def test_prints_come_at_once_without_buffers(modules: Path) -> None:
    echo = "sys.{}.write({!r}); subprocess.run(['echo', {!r}])"
    set_tool(modules, f"{echo.format('stdout', 'A', 'B')}; {echo.format('stderr', 'C', 'D')}")
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe, program = subprocess.PIPE, [sys.executable, "-m", "amplifier_foundation", "run", "talk"]
    done = subprocess.run(program, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert "AB\nCD\ndone\n" in done.stdout


def test_what_modules_write_as_bytes_comes_at_once(modules: Path) -> None:
    set_tool(modules, "sys.stdout.buffer.write(b'first, '); print('second')")
    assert "first, second\n" in forks.run(["run", "talk"]).stderr
