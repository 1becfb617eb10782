"""Test that triggers hear the events of their own project."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import TriggerConfigError
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import BackgroundSessionConfig, BackgroundSessionManager, EventRouter, PreparedBundle

TELLER = """---
bundle: {name: teller}
session: {orchestrator: loop-basic, context: context-simple}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: tell}
          call: {tool: emit, input: {name: "deploy:approved"}}
        - when: {user: ask}
          call: {tool: delegate, input: {agent: self, instruction: tell}}
      otherwise: {say: done}
tools: [{module: tool-emit}, {module: tool-delegate}]
---
"""
PATIENCE = 10


class Projects:
    """Background sessions of several projects on one store and one router."""

    def __init__(self, stack: AsyncExitStack, store: DurableStore, plugins: Plugins, folder: Path) -> None:
        self.stack, self.store, self.plugins, self.folder = stack, store, plugins, folder
        self.router = EventRouter(store)
        self.bundle = folder / "teller.md"
        self.bundle.write_text(TELLER)

    async def open(self, make_bundle: Any, project: str, **listens: Any) -> BackgroundSessionManager:
        """Start a listener, and a teller that emits `deploy:approved`, in a project of this name."""
        home = self.folder / project
        home.mkdir(parents=True)
        prepared: PreparedBundle = make_bundle("family")
        root = await prepared.create_session(session_cwd=home, plugins=self.plugins)
        await self.stack.enter_async_context(root)
        manager = BackgroundSessionManager(root, self.router, self.store, plugins=self.plugins)
        await self.stack.enter_async_context(manager)
        follows = {"module": "trigger-session-event", "config": {"event_names": ["deploy:*"], **listens}}
        listener: dict[str, Any] = {"name": "listener", "bundle": str(self.bundle), "triggers": [follows]}
        for config in (listener, {"name": "teller", "bundle": str(self.bundle), "instruction_template": "{prompt}"}):
            await manager.start(BackgroundSessionConfig.model_validate(config))
        return manager

    async def heard(self) -> set[str]:
        """Return the projects whose listeners were woken, once every follower has read the log."""
        async with asyncio.timeout(PATIENCE):
            while not await self.router.is_read():
                await asyncio.sleep(0)
        woken = await self.store.deliveries()
        return {Path(each.project).name for each in woken if each.queue.endswith("listener")}


@pytest.fixture
async def projects(store: DurableStore, plugins: Plugins, tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:
        yield Projects(stack, store, plugins, tmp_path)


@pytest.mark.parametrize("prompt", ["tell", "ask"], ids=["session", "session below it"])
async def test_an_event_wakes_its_own_project_alone(projects: Projects, make_bundle: Any, prompt: str) -> None:
    here = await projects.open(make_bundle, "here")
    await projects.open(make_bundle, "here/below")
    await projects.open(make_bundle, "elsewhere")
    await projects.open(make_bundle, "anybody", **{"from": "any"})
    await projects.open(make_bundle, "friend", **{"from": [".", "../here"]})
    async with projects.router.subscribe(["session:completed"]) as ended, asyncio.timeout(PATIENCE):
        await here.fire("teller", data={"prompt": prompt})
        while (await anext(ended)).data.get("session_name") != "teller":
            pass
        while await projects.heard() != {"here", "anybody", "friend"}:
            await asyncio.sleep(0.01)
    assert {event.project for event in await projects.store.events()} <= {
        str(projects.folder / name) for name in ("here", "here/below", "elsewhere", "anybody", "friend")
    }


async def test_the_end_of_a_session_is_its_projects_own(projects: Projects, make_bundle: Any) -> None:
    names = {"event_names": ["session:completed"], "source_sessions": ["teller"]}
    here = await projects.open(make_bundle, "here", **names)
    await projects.open(make_bundle, "elsewhere", **names)
    async with projects.router.subscribe(["session:completed"]) as ended, asyncio.timeout(PATIENCE):
        await here.fire("teller", data={"prompt": "nothing"})
        while (await anext(ended)).data.get("session_name") != "listener":
            pass
    assert await projects.heard() == {"here"}


@pytest.mark.parametrize("origin", ["all", [], 5, [""]])
async def test_where_events_come_from_is_checked(projects: Projects, make_bundle: Any, origin: Any) -> None:
    with pytest.raises(TriggerConfigError, match="must be 'project', 'any', or a list of folders"):
        await projects.open(make_bundle, "here", **{"from": origin})
