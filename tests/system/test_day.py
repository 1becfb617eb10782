"""A day of simulated time with the examples of the README: people are asked seldom, and only what is worth it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from amplifier_core import TriggerEvent, TriggerType, load_plugins
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_foundation import BackgroundSessionManager, EventRouter, load_bundle
from amplifier_foundation.background.approvals import decide, read_all
from amplifier_foundation.paths import data_home, make_private
from amplifier_foundation.security import read_policy

README = (Path(__file__).parents[2] / "amplifier_foundation" / "README.md").read_text(encoding="utf-8")
BASH = """
class Bash:
    name, description = "bash", "Runs a command."
    input_schema = {"type": "object", "properties": {"command": {"type": "string"}}}

    async def execute(self, input):
        return f"ran {input['command']}"

async def mount(coordinator, config):
    await coordinator.mount("tools", Bash())
"""
OPERATOR = """---
bundle: {name: operator}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'File changed'}
          call: [{tool: bash, input: {command: git status}}, {tool: bash, input: {command: ./deploy.sh}}]
        - {when: {tool: bash}, say: Deployed.}
tools: [{module: tool-bash, source: ./bash.py}]
background_sessions:
  - {name: deployer}
---
"""


def block(containing: str) -> str:
    [found] = [each for each in re.findall(r"^```\w+\n(.*?)^```$", README, flags=re.M | re.S) if containing in each]
    return str(found)


Up = tuple[BackgroundSessionManager, MemoryStore, VirtualClock, list[Any]]


@asynccontextmanager
async def bring_up(
    folder: Path,
) -> AsyncIterator[Up]:
    """Run the background sessions of a folder's bundle as `up` does, woken by the test instead of by triggers."""
    prepared = await (await load_bundle(str(folder / "bundle.md"))).prepare()
    store, clock, seen, plugins = MemoryStore(), VirtualClock(), list[Any](), load_plugins(environ={})
    root = await prepared.create_session(session_cwd=folder, plugins=plugins, permissions=read_policy(folder))
    manager = BackgroundSessionManager(
        root, EventRouter(store), store, plugins=plugins, bundle=prepared, clock=clock, observer=seen.append
    )
    manager._engine.poll = 3600.0  # the test wakes it
    async with manager:
        for config in prepared.bundle.background_sessions:
            await manager.start(config.model_copy(update={"triggers": []}))
        yield manager, store, clock, seen
    await root.cleanup()


async def work_a_day(folder: Path, name: str) -> list[Any]:
    """Change a file each hour, and answer each question with "always"; return the questions."""
    asked: list[Any] = []
    async with bring_up(folder) as (manager, store, clock, seen):
        queue = next(names[1] for names in manager.names if names[0] == name)
        for hour in range(24):
            (folder / "app.py").write_text(f"hour = {hour}\n")
            event = TriggerEvent(TriggerType.FILE_CHANGE, "day", file_path="app.py", change_type="modified")
            await store.enqueue(str(folder), queue, f"{queue}/day#1", event, now=clock.now())
            manager.wake(name)
            async with asyncio.timeout(60):
                while sum(each.kind == "completed" for each in seen) <= hour:
                    assert not [each for each in seen if each.kind in ("dead", "retried")], seen
                    for question in await read_all(store, clock.now()):
                        if question.state == "pending" and any(each.kind == "held" for each in seen):
                            asked.append(question)
                            await decide(store, question, "approved", "always", now=clock.now())
                            manager.wake(name)
                    await asyncio.sleep(0.001)
            await clock.advance(3600)
    return asked


@pytest.mark.long
async def test_a_days_work_of_the_examples_asks_at_most_three_times(project: Path, home: Path) -> None:
    folders = {name: project / name for name in ("notes", "demo", "operator")}
    shutil.copytree(str(files("amplifier_foundation.cli") / "demo_project"), folders["demo"])
    for name in ("notes", "operator"):
        folders[name].mkdir()
    (folders["notes"] / "bundle.md").write_text(block("name: notes"))
    (folders["operator"] / "bundle.md").write_text(OPERATOR)
    (folders["operator"] / "bash.py").write_text(BASH)
    settings = make_private(data_home()) / "settings.yaml"
    settings.write_text(block("bash(git status *)"))
    assert await work_a_day(folders["notes"], "counter") == []
    assert await work_a_day(folders["demo"], "reviewer") == []
    asked = await work_a_day(folders["operator"], "deployer")
    assert [each.arguments for each in asked] == [{"command": "./deploy.sh"}], "once for good, and not each hour"
    assert "bash(./deploy.sh)" in yaml.safe_load(settings.read_text())["permissions"]["allow"]
