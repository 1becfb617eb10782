"""Kill the runs of a workflow at random moments: the outputs are the same, and every turn was taken once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.sessions.storages import open_store

KILLS = int(os.environ.get("KILLS", "3"))
BUNDLE = """---
bundle: {name: work}
providers:
  - module: provider-playbook
    config:
      delay_ms: 5
      rules:
        - when: {user: '^verdict (?P<n>[0-9]+)'}
          say: '{{"round": {n}}}'
      otherwise: {say: "answer to {prompt}"}
workflows:
  long:
    steps:
      - {id: plan, agent: self, prompt: plan}
STEPS
      - loop:
          - {id: draft, agent: self, fork: plan, prompt: "draft {iteration}"}
          - {id: verdict, agent: self, fork: draft, prompt: "verdict {iteration}", output_schema: {required: [round]}}
        until: verdict.round == 3
      - {for_each: [a, b, c], do: [{id: tell, agent: self, fork: draft, prompt: "tell {item}"}]}
---
You work.
"""
SIDE, CHAIN = 6, 14


def steps() -> str:
    side = [f"          - {{id: side{n}, agent: self, fork: plan, prompt: side {n}}}" for n in range(SIDE)]
    names = ["plan", *(f"step{n}" for n in range(CHAIN))]
    chain = [
        f"      - {{id: {after}, agent: self, fork: {before}, prompt: {after}}}"
        for before, after in itertools.pairwise(names)
    ]
    return "\n".join(["      - parallel:", *side, *chain])


def amplifier(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "amplifier_foundation", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def kill_at(folder: Path, seconds: float, *arguments: str) -> bool:
    """Kill a run so long after its first task has begun; return whether it was killed."""
    command = [sys.executable, "-m", "amplifier_foundation", "flow", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            return True
    return False


@pytest.fixture
def folder(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    (project / "bundle.md").write_text(BUNDLE.replace("STEPS", steps()))
    return project


async def test_a_run_killed_again_and_again_ends_as_if_nobody_had(folder: Path) -> None:
    moments = random.Random(18)
    whole = amplifier(folder, "flow", "run")["outputs"]
    assert len(whole) == 1 + SIDE + CHAIN + 3
    kill_at(folder, 0.05, "run")
    [run_id] = [each["run"] for each in amplifier(folder, "flow", "list") if each["status"] == "interrupted"]
    kills = 1
    while kills < KILLS and kill_at(folder, moments.uniform(0, 0.06), "resume", run_id):
        kills += 1
    assert amplifier(folder, "flow", "resume", run_id)["outputs"] == whole
    store = open_store(load_plugins(), None)
    try:
        for record in [each for each in await store.sessions(parent_id=run_id) if each.fork_of != run_id]:
            said = await store.read(record.session_id)
            own = said[record.fork_at or 0 :]
            assert [message["role"] for message in own] == ["user", "assistant"], record.session_id
    finally:
        await store.close()
