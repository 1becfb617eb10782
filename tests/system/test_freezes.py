"""The whole program with a tool whose C code keeps the lock of the interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke

pytestmark = pytest.mark.slow

PATIENCE = 60
LIMIT = 2.0

TOOL = """
import re

class Freeze:
    name, description = "freeze", "Never gives the lock of the interpreter back."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        return re.match(r"(a+)+$", "a" * 60 + "b")

async def mount(coordinator, config):
    await coordinator.mount("tools", Freeze())
"""

BUNDLE = """---
bundle: {name: freezing}
providers:
  - module: provider-playbook
    config: {otherwise: {call: {tool: freeze, input: {}}}}
tools: [{module: freeze, source: ./freeze.py}]
background_sessions:
  - {name: cold, triggers: [{module: trigger-manual}], max_attempts: 2}
---
"""

PROGRAM = f"""
import sys
from amplifier_foundation.background import freezing
from amplifier_foundation.cli import main
freezing.LIMIT, freezing.TURN_EVERY = {LIMIT}, 0.1
sys.argv[0] = "amplifier"
main()
"""


def up(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-c", PROGRAM, "up"], cwd=folder, stdout=out, stderr=out)


def until(text: str, log: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while text not in log.read_text():
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.02)


@pytest.mark.long
def test_a_frozen_process_ends_with_its_stacks_and_its_event_is_given_up_after_its_attempts(
    home: Path, project: Path
) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    (project / "freeze.py").write_text(TOOL)
    assert invoke(["trigger", "fire", "cold"]) == exits.OK
    for attempt in (1, 2):
        log = project.parent / f"log{attempt}"
        process = up(project, log)
        try:
            assert process.wait(PATIENCE) == -signal.SIGPROF
        finally:
            process.kill()
        assert 'freeze.py", line 9 in execute' in log.read_text()
    log = project.parent / "log3"
    process = up(project, log)
    try:
        until("the process ended 2 times while it was handled", log)
        process.terminate()
        assert process.wait(PATIENCE) == exits.TERMINATED
    finally:
        process.kill()


def test_a_stopped_process_is_not_frozen(home: Path, project: Path) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    (project / "freeze.py").write_text(TOOL)
    log = project.parent / "log"
    process = up(project, log)
    try:
        until("Watching", log)
        process.send_signal(signal.SIGSTOP)
        time.sleep(LIMIT + 0.5)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(PATIENCE) == exits.TERMINATED
    finally:
        process.kill()
