"""The tools in a session of the real program: what only reads runs, what else there is waits for a person."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplifier_sandbox.landlock import find_version
from tests import forks
from tests.programs import require

BUNDLE = r"""---
bundle: {name: builder}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'do (?P<command>.+)'}
          call: {tool: bash, input: {command: "{command}"}}
        - when: {tool: bash}
          say: "said: {result}"
tools: [{module: tool-bash}]
---
You run commands.
"""


@pytest.mark.parametrize(
    ("command", "settings", "code", "made"),
    [
        ("wc -l a.txt | sort -n", "", 0, False),
        ("touch made", "", 3, False),
        ("ls && touch made", "permissions: {allow: ['bash(touch *)']}\n", 0, True),
        ("ls; t'ouch' made", "permissions: {allow: ['bash(touch *)'], deny: ['bash(touch made*)']}\n", None, False),
    ],
)
def test_commands_run_by_the_permissions_of_the_session(
    tmp_path: Path, work: Path, command: str, settings: str, code: int | None, made: bool
) -> None:
    require("bwrap")
    (work / "bundle.md").write_text(BUNDLE)
    (work / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "settings.yaml").write_text(settings)
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "data"), "AMPLIFIER_TRUST": "1"}
    done = forks.run(("run", f"do {command}"), cwd=work, env=environment)
    if code is not None:
        assert done.returncode == code, done.stderr
    assert (work / "made").exists() is made
    assert ("2 a.txt" in done.stdout) is command.startswith("wc")


@pytest.mark.skipif(find_version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize(("command", "code"), [("touch made", 0), ("ls", 3)])
def test_a_sandbox_that_does_not_hold_is_known_before_the_first_command_is_decided_about(
    tmp_path: Path, work: Path, fake_bwrap: Path, command: str, code: int
) -> None:
    (work / "bundle.md").write_text(BUNDLE)
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "settings.yaml").write_text("permissions: {allow: ['bash(touch *)']}\n")
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "data"), "AMPLIFIER_TRUST": "1"}
    done = forks.run(("run", f"do {command}"), cwd=work, env=environment)
    assert done.returncode == code, done.stderr
    assert "call again" not in done.stdout
    assert (work / "made").exists() is (code == 0)
