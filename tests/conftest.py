"""Fixtures of every test: a data folder of its own, and the real program."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that nobody else uses."""
    folder = tmp_path / "home"
    monkeypatch.setenv("AMPLIFIER_HOME", str(folder))
    for name in ("AMPLIFIER_LOAD_PLUGINS", "AMPLIFIER_BLOCK_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def amplifier(home: Path) -> Run:
    """Run the program as a process of its own and return how it ended."""

    def run(*arguments: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "amplifier_foundation", *arguments],
            cwd=cwd or Path.cwd(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "AMPLIFIER_HOME": str(home)},
            check=False,
        )

    return run


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Undo what a command line that runs within the test does to the level of the log."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _no_failure_waits_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the process of a `with Popen` that something fails in: to leave it waits for the end without a limit."""
    leave = subprocess.Popen.__exit__

    def killed(process: subprocess.Popen[bytes], kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            process.kill()
        leave(process, kind, *rest)

    monkeypatch.setattr(subprocess.Popen, "__exit__", killed)
