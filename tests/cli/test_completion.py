"""The completions of a real shell: commands, options, ids, names and keys."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_core import SessionRecord, load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke

from ..programs import require

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: echo}
background_sessions:
  - name: reviewer
    triggers: [{module: trigger-timer}]
  - {name: summarizer}
workflows:
  release:
    steps: [{id: one, prompt: "Go."}]
---
"""
IN_BASH = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_amplifier_completion amplifier
printf '%s\\n' "${COMPREPLY[@]}"
"""
LOADED = """
import sys
from amplifier_foundation.cli import main
try:
    main()
finally:
    print(*sys.modules)
"""

Complete = Callable[..., list[str]]


async def _fill(project: Path) -> None:
    store = open_inbox(load_plugins(environ={}))
    for number in range(3):
        await store.create(SessionRecord(f"echo-{number}000", project=str(project.resolve()), status="completed"))
    await store.create(
        SessionRecord("run-1000", project=str(project.resolve()), metadata={"flow": {"name": "release"}})
    )
    await store.create(SessionRecord("elsewhere-1000", project="/elsewhere"))
    await store.close()


@pytest.fixture
def project_with_sessions(home: Path, project: Path) -> Path:
    """A project with sessions, a run, an issue, a bundle and a setting."""
    home.mkdir(mode=0o700)
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    for command in (["bundle", "add", "team", "."], ["issue", "create", "Fix it"], ["config", "set", "bundle", "team"]):
        assert invoke(command) == exits.OK
    asyncio.run(_fill(project))
    return project


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "amplifier").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m amplifier_foundation "$@"\n')
    (folder / "amplifier").chmod(0o700)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert invoke(["completion", shell]) == exits.OK
    return capsys.readouterr().out


@pytest.fixture
def in_bash(program: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Complete:
    """Complete the last of the words of a line in a real bash."""
    script = script_of("bash", capsys) + IN_BASH

    def complete(*words: str) -> list[str]:
        command = [require("bash"), "--norc", "-c", script, "bash", "amplifier", *words]
        done = subprocess.run(command, env=program, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return complete


def test_bash_completes_commands_options_ids_names_and_keys(project_with_sessions: Path, in_bash: Complete) -> None:
    for words, expected in (
        (("ses",), ["session"]),
        (("session", "ex"), ["export"]),
        (("session", "list", "--st"), ["--status"]),
        (("session", "list", "--status", "fai"), ["failed"]),
        (("session", "show", ""), ["last", "run-1000", "echo-2000", "echo-1000", "echo-0000"]),
        (("run", "--resume", "echo-1"), ["echo-1000"]),
        (("flow", "show", ""), ["last", "run-1000"]),
        (("flow", "run", ""), ["release"]),
        (("stop", ""), ["reviewer", "summarizer"]),
        (("run", "-b", "te"), ["team"]),
        (("config", "get", "retention.k"), ["retention.keep"]),
        (("issue", "show", ""), ["1"]),
        (("approvals", "show", ""), ["last"]),
        (("session", "show", "absent"), []),
    ):
        assert in_bash(*words) == expected, words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(
    shell: str, program: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = script_of(shell, capsys)
    assert "_AMPLIFIER_COMPLETE" in script
    found = require(shell)
    file = tmp_path / "script"
    file.write_text(script)
    asked = {
        "zsh": [
            "-fc",
            f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {file}; echo ${{_comps[amplifier]}}",
        ],
        "fish": ["--no-config", "-c", f"source {file}; complete -C 'amplifier ses'"],
    }
    done = subprocess.run([found, *asked[shell]], env=program, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split()[0] in ("session", "_amplifier_completion")


def test_completions_are_silent_where_nothing_can_be_read(home: Path, project: Path, in_bash: Complete) -> None:
    assert in_bash("session", "show", "") == ["last"]
    assert not home.exists()
    home.mkdir()
    (home / "settings.yaml").write_text("storage: [")
    (home / "amplifier.db").write_text("this is no store")
    assert in_bash("session", "show", "") == ["last"]
    assert in_bash("config", "get", "x") == []


@pytest.mark.parametrize(
    "line", ["session show ", "run --resume ", "stop ", "flow run ", "run -b ", "config get ", "issue show "]
)
def test_completions_need_neither_an_event_loop_nor_pydantic(line: str, project_with_sessions: Path) -> None:
    count = len(line.split()) + 1
    environ = {"COMP_WORDS": f"amplifier {line}", "COMP_CWORD": str(count), "_AMPLIFIER_COMPLETE": "bash_complete"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", LOADED], env={**os.environ, **environ}, capture_output=True, text=True, check=True
        )
    *words, modules = done.stdout.splitlines()
    assert words
    assert set(modules.split()) & {"asyncio", "pydantic", "rich", "yaml"} == set()
