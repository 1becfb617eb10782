"""The page of a running `up`, and of the command, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.cli import exits

from .test_guard import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
BUNDLE = """---
bundle: {name: shop}
providers: [{module: provider-playbook, config: {otherwise: {say: done}}}]
background_sessions:
  - name: worker
    triggers: [{module: trigger-manual}]
---
"""


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[str]:
    """Run a command that serves the page; give the address that it prints. It ends in order."""
    environment = {**os.environ, "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1", "NO_COLOR": "1"}
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "http://127.0.0.1:" in line:
                    break
            assert lines, process.wait()
            yield "http" + lines[-1].rpartition("http")[2].strip()
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
            assert process.wait() == 128 + signal.SIGTERM, rest
            assert "Traceback" not in rest
        finally:
            process.kill()


def make_link(folder: Path, client: Client) -> str:
    """Return a link, as the command makes it while the page runs."""
    environment = {**os.environ, "AMPLIFIER_HOME": str(folder / "home")}
    command = [*PROGRAM, "dashboard", "--link", "--port", str(client.place.port)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_running_up_serves_the_page(tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "settings.yaml").write_text("servers: {dashboard: {port: 0}}\n", encoding="utf-8")
    with running(tmp_path, "up", "--serve", "dashboard", "bundle.md", "--trust") as address:
        assert "token" not in address  # it may go to a log
        client = Client(address)
        link = make_link(tmp_path, client)
        assert client.enter(link).status == 303
        assert client.ask("GET", "/").status == 200


def test_the_command_serves_it_and_makes_further_links(tmp_path: Path) -> None:
    with running(tmp_path, "dashboard", "--port", "0") as link:
        first = Client(link)
        assert first.enter(link).status == 303
        assert first.ask("GET", "/").status == 200
        assert Client(link).enter(make_link(tmp_path, first)).status == 303


def test_a_session_makes_no_link(tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_SESSION": "1"}
    for options in (["--link"], ["--port", "0"]):
        command = [*PROGRAM, "dashboard", *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (exits.WAITING, "")
        assert "is for a person" in done.stderr
