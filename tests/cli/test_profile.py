"""`amplifier --profile FILE COMMAND`: a real profiler looks at a real command."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.cli.profiling import hide_commands

pytestmark = pytest.mark.slow

PATIENCE = 60
BURN = """
import subprocess, sys, time

CHILD = '''
import time
def spin_in_child():
    end = time.process_time() + 1
    while time.process_time() < end:
        pass
spin_in_child()
'''

def burn_time():
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass

class Burn:
    name, description, input_schema = "burn", "Uses time.", {"type": "object", "properties": {}}

    async def execute(self, arguments):
        burn_time()
        subprocess.run([sys.executable, "-c", CHILD], check=True)
        return {"burnt": True}

async def mount(coordinator, config):
    await coordinator.mount("tools", Burn())
"""
BUNDLE = """---
bundle: {name: burning}
providers:
  - module: provider-playbook
    config: {rules: [{when: {tool: burn}, say: done}], otherwise: {call: {tool: burn}}}
tools: [{module: burn, source: ./burn.py}]
background_sessions: [{name: idle}]
---
"""


@pytest.fixture
def folder(home: Path, project: Path) -> Path:
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (project / "burn.py").write_text(BURN, encoding="utf-8")
    return project


def begin(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "amplifier_foundation", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*command: str) -> tuple[int, str, str]:
    process = begin(*command)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def test_a_profile_names_the_functions_of_the_command_and_of_its_processes(folder: Path) -> None:
    file = folder / "profile.txt"
    file.write_text("of the day before")
    plain, profiled = run("--quiet", "run", "hello"), run("--profile", "profile.txt", "--quiet", "run", "hello")
    assert profiled == plain == (exits.OK, "done\n", "")
    stacks = file.read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"process \d+:.+ \d+", stack) for stack in stacks)
    assert [stack for stack in stacks if "burn_time (" in stack]
    assert [stack for stack in stacks if "spin_in_child (" in stack]


def test_the_exit_code_and_the_error_of_a_command_stay_its_own(folder: Path) -> None:
    assert run("--profile", "profile.txt", "session", "show", "nothing") == run("session", "show", "nothing")
    assert run("session", "show", "nothing")[0] == exits.NOT_FOUND
    assert (folder / "profile.txt").stat().st_size > 0


def test_a_profile_is_private_and_has_no_secret_of_a_command_line(folder: Path) -> None:
    run("--profile", "profile.txt", "session", "show", "token=sk-ant-0123456789abcdef0123456789")
    text = (folder / "profile.txt").read_text(encoding="utf-8")
    assert "session show token=[REDACTED]" in text
    assert "0123456789abcdef" not in text
    assert stat.S_IMODE((folder / "profile.txt").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("stack", "shown"),
    [
        (
            'process 7:"run token=sk-ant-0123456789abcdef";a (b.py:1) 5\n',
            'process 7:"run token=[REDACTED]";a (b.py:1) 5\n',
        ),
        ('process 7:"run token=sk-ant-0123456789abcdef" 1\n', 'process 7:"run token=[REDACTED]" 1\n'),
        ('process 7:"sh "a"; token=sk-ant-0123456789abcdef" 1\n', 'process 7:"sh "a"; token=[REDACTED]" 1\n'),
        ('process 7:"sh";a (b.py:1);c (token.py:2) 5\n', 'process 7:"sh";a (b.py:1);c (token.py:2) 5\n'),
    ],
)
def test_a_stack_has_no_secret_of_a_command_line_also_without_a_frame(stack: str, shown: str) -> None:
    assert hide_commands(stack) == shown


def test_background_sessions_end_with_ctrl_c_and_leave_their_profile(folder: Path) -> None:
    process = begin("--profile", "profile.txt", "up")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("Watching "):
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == exits.INTERRUPTED
    assert "bring_up (" in (folder / "profile.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nowhere/profile.txt", "."])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(name: str, folder: Path) -> None:
    code, out, err = run("--profile", name, "run", "hello")
    assert (code, out) == (exits.USAGE, "")
    assert "cannot be written" in err or "is a directory" in err
    assert run("session", "list", "--json")[1].count("session_id") == 0


def test_without_the_profiler_the_error_names_its_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setenv("PATH", str(folder))
    assert invoke(["--profile", "profile.txt", "ps"]) == exits.USAGE
    assert "py-spy is not installed. Install it with: pip install 'amplifier[profile]'" in capsys.readouterr().err
    assert not (folder / "profile.txt").exists()


def test_a_profiler_that_may_not_look_is_told_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = folder / "py-spy"
    program.write_text("#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    assert invoke(["--profile", "profile.txt", "run", "hello"]) == exits.USAGE
    assert "py-spy did not begin: Permission Denied: Try running" in capsys.readouterr().err
    assert not (folder / "profile.txt").exists()
