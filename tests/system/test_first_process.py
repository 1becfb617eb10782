"""Runs commands as the first process of a container: a namespace of process ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import require

PATIENCE = 60.0
BUNDLE = """---
bundle: {name: tend}
providers: [{module: provider-playbook, config: {otherwise: {say: hello}}}]
background_sessions: [{name: hourly, triggers: [{type: timer, config: {interval_seconds: 3600}}], \
instruction_template: Look.}]
---
You look after things.
"""
COMMANDS = (("up", "--trust"), ("logs", "-f"), ("run", "--trust"))


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(found: Callable[[], object]) -> None:
    """Wait until something is found. Raises `AssertionError`."""
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def first_process(folder: Path, *arguments: str, begin: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run a command as process 1, as `docker run` does: yield what runs it, its number here, and that of an orphan.

    A shell runs `begin` before. The orphan ends with what stands in the pipe `orphan` of the folder.
    """
    unshare = [require("unshare"), "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of process ids here")
    os.mkfifo(folder / "orphan")
    (folder / "bundle.md").write_text(BUNDLE)
    command = [sys.executable, "-m", "amplifier_foundation", *arguments]
    script = "(cat < orphan > /dev/null &); echo left; " + begin + ' exec "$@" > /dev/null'
    with subprocess.Popen(
        [*unshare, "sh", "-c", script, "-", *command],
        cwd=folder,
        env={**os.environ, "AMPLIFIER_HOME": str(folder / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"left\n"
            (first,) = children_of(program.pid)
            (orphan,) = children_of(first)
            yield program, first, orphan
        finally:
            program.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda each: each[0])
def test_sigterm_ends_the_first_process_of_a_container(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with first_process(tmp_path, *arguments) as (program, first, _):
        until(lambda: len(children_of(first)) == 2)  # its start goes on from here
        os.kill(first, signal.SIGTERM)
        assert program.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@pytest.mark.parametrize("ends", ["before the start", "later"])
def test_the_first_process_of_a_container_reaps_orphans_and_keeps_the_exit_code(tmp_path: Path, ends: str) -> None:
    with first_process(tmp_path, "run", "--trust", "--bundle", "none.md") as (program, first, orphan):
        if ends == "later":
            until(lambda: len(children_of(first)) == 2)
        (tmp_path / "orphan").write_text("")
        until(lambda: orphan not in children_of(first))
        program.communicate(b"hello", PATIENCE)
        assert program.returncode == 5


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_the_first_process_of_a_container_ends_also_where_sigchld_is_ignored(tmp_path: Path) -> None:
    with first_process(tmp_path, "run", "--trust", "--bundle", "none.md", begin="trap '' CHLD;") as (program, _, _):
        program.communicate(b"hello", PATIENCE)
        assert program.returncode == 5
