"""Kill the runs of a workflow at random moments: the outputs are the same, and every turn was taken once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.background.approvals import decide
from amplifier_foundation.flows.runs import read_questions
from amplifier_foundation.sessions.storages import open_store
from tests import forks

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

KILLS = int(os.environ.get("KILLS", "3"))
TASKS = int(os.environ.get("TASKS", "20"))
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
      - {approval: begin, question: "Begin {plan}?", deps: plan}
STEPS
      - loop:
          - {id: draft, agent: self, fork: plan, prompt: "draft {iteration}"}
          - {id: verdict, agent: self, fork: draft, prompt: "verdict {iteration}", output_schema: {required: [round]},
             needs_approval: "Judge {iteration}?"}
        until: verdict.round == 3
      - {for_each: [a, b, c], do: [{id: tell, agent: self, fork: draft, prompt: "tell {item}", needs_approval: true}]}
---
You work.
"""
SIDE = TASKS // 3
CHAIN = TASKS - SIDE - 11
"""Eleven tasks are in the plan, the approval, the three rounds of the loop, and the items."""


def steps() -> str:
    side = [f"          - {{id: side{n}, agent: self, fork: plan, prompt: side {n}}}" for n in range(SIDE)]
    names = ["plan", *(f"step{n}" for n in range(CHAIN))]
    chain = [
        f"      - {{id: {after}, agent: self, fork: {before}, prompt: {after}}}"
        for before, after in itertools.pairwise(names)
    ]
    return "\n".join(["      - parallel:", *side, *chain])


def run_until(folder: Path, seconds: float | None, *arguments: str) -> tuple[int, Any]:
    """Run a workflow, and kill it so long after its first line (None: never); return the code, and what it printed."""
    command = ["flow", *arguments, "--json"]
    with forks.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # it may have ended just now
            process.communicate()
            return -signal.SIGKILL, None
    assert out, err
    return process.returncode, json.loads(out)["data"]


@pytest.fixture
def folder(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    (project / "bundle.md").write_text(BUNDLE.replace("STEPS", steps()))
    return project


async def approve_all(store: DurableStore, run_id: str) -> None:
    for question in await read_questions(store, await store.get(run_id)):
        await decide(store, question, "approved")


async def finish(store: DurableStore, folder: Path, *arguments: str, moments: random.Random | None = None) -> Any:
    """Run a workflow to its end, answer what it asks, and kill it at `moments`; return its result, and the kills."""
    kills, run_id = 0, ""
    while True:
        seconds = moments.uniform(0, 0.12) if moments is not None and kills < KILLS else None
        code, result = run_until(folder, seconds, *arguments)
        if code == 0:
            return result, kills
        kills += code == -signal.SIGKILL
        if not run_id:
            runs = [each for each in await store.sessions() if isinstance(each.metadata.get("flow"), dict)]
            [run_id] = [each.session_id for each in runs]
        await approve_all(store, run_id)
        arguments = ("resume", run_id)


async def check(store: DurableStore, run_id: str) -> None:
    """Every turn is recorded once, and every step announced once."""
    for record in [each for each in await store.sessions(parent_id=run_id) if each.fork_of != run_id]:
        said = await store.read(record.session_id)
        assert [message["role"] for message in said[record.fork_at or 0 :]] == ["user", "assistant"], record.session_id
    events = await store.events(source_session_id=run_id, limit=100_000)
    keys = [event.data["key"] for event in events if event.name == "flow:task:completed"]
    assert (len(keys), len(set(keys))) == (TASKS, TASKS)
    assert [event.name for event in events].count("flow:run:completed") == 1


async def test_a_run_killed_again_and_again_ends_as_if_nobody_had(folder: Path) -> None:
    store = open_store(load_plugins(), None)
    try:
        whole, _ = await finish(store, folder, "run")
        assert len(whole["outputs"]) == TASKS - 11 + 5
        await check(store, whole["run"])
        await store.delete(whole["run"])
        moments, kills = random.Random(18), 0
        while kills < KILLS:
            result, killed = await finish(store, folder, "run", moments=moments)
            assert result["outputs"] == whole["outputs"]
            await check(store, result["run"])
            await store.delete(result["run"])
            kills += killed
    finally:
        await store.close()
