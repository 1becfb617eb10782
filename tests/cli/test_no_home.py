"""A user whom the system does not know, without HOME: so run containers with an arbitrary user id."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.cli import exits

if TYPE_CHECKING:
    from pathlib import Path

AS_UNKNOWN = """
import pwd, sys

def know_nobody(number):
    raise KeyError(number)

pwd.getpwuid = know_nobody
from amplifier_foundation.cli import invoke
for command in sys.argv[1:]:
    print(command, invoke(command.split()), flush=True)
"""
BUNDLE = """---
bundle: {name: one}
providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
background_sessions: [{name: watch, triggers: [{module: trigger-file-watcher}]}]
---
Work.
"""
COMMANDS = (
    "trust -y",
    "run hello",
    "session list",
    "session tree",
    "session import",
    "trigger dead",
    "cost",
    "logs",
    "ps",
    "issue list",
    "memory list",
    "mcp list",
    "flow list",
    "service install --print",
)


def invoke_unknown(*commands: str, home: Path | None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "AMPLIFIER_HOME")}
    own = {} if home is None else {"AMPLIFIER_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", AS_UNKNOWN, *commands],
        env={**kept, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_need_no_home_folder(project: Path, home: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    done = invoke_unknown(*COMMANDS, "doctor", home=home)
    assert "RuntimeError" not in done.stderr, done.stderr
    ended = set(done.stdout.splitlines())
    assert {f"{command} {exits.OK}" for command in COMMANDS} - ended == set()


def test_a_service_without_a_home_folder_is_refused(project: Path, home: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    done = invoke_unknown("service install -y", home=home)
    assert "amplifier: a service belongs to a user with a home folder, and HOME is not set." in done.stderr
    assert f"service install -y {exits.FAILED}" in done.stdout


@pytest.mark.parametrize("command", ["trust --list", "run hello"])
def test_without_any_place_for_the_data_folder_its_variable_is_named(command: str, project: Path) -> None:
    done = invoke_unknown(command, home=None)
    assert "this user has none: HOME is not set. Set AMPLIFIER_HOME to an absolute path" in done.stderr
    assert done.stdout == f"{command} {exits.USAGE}\n"
    assert list(project.iterdir()) == []
