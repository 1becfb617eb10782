"""Orchestrators that run the background sessions of their bundle themselves, as those of other kernels do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import Bundle, converse, load_bundle, run_background
from amplifier_foundation.paths import project_of
from amplifier_foundation.sessions.lock import owner_lock

HOST = """
import json
from pathlib import Path

class Host:
    def __init__(self, coordinator, config):
        self.coordinator, self.own = coordinator, config

    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        declared = self.coordinator.config.get("background_sessions", [])
        if prompt == "delegate":
            spawn = self.coordinator.get_capability("session.spawn")
            return (await spawn(agent_name="self", instruction="look"))["output"]
        if prompt == "start" and declared:
            return await self.start(declared)
        own = self.own.get("background_sessions")
        return json.dumps([[each["name"] for each in declared], own and [each["name"] for each in own]])

    async def start(self, declared):
        from amplifier_foundation import BackgroundSessionConfig, BackgroundSessionManager, EventRouter
        router = EventRouter()
        manager = BackgroundSessionManager(parent_session=self.coordinator.session, event_router=router)
        async with router.subscribe(["session:completed"]) as completed:
            for each in declared:
                await manager.start(BackgroundSessionConfig(**each))
            await router.emit("go", {"n": 1})
            output = (await anext(completed)).data["output"]
        await manager.stop_all()
        return output

async def mount(coordinator, config=None):
    mounted = Path(__file__).with_name("mounted")
    mounted.write_text(json.dumps([coordinator.config.get("background_sessions"), config]))
    await coordinator.mount("orchestrator", Host(coordinator, config or {}))
"""
WORKER = """---
bundle: {name: worker}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: "You said: {prompt}"}}}]
---
"""
DECLARED = "[{name: w, bundle: ./worker.md, instruction_template: 'do {n}', triggers: [{TRIGGER}]}]"
TOP = "background_sessions: " + DECLARED.replace(
    "TRIGGER", "module: trigger-session-event, config: {event_names: [go]}"
)
PROVIDERS = "providers: [{module: provider-playbook}]\n"
ORCHESTRATOR = PROVIDERS + "session: {orchestrator: {module: orchestrator-host, source: ./host.py, config: {CONFIG}}}\n"
FIELD = "background_sessions: " + DECLARED.replace("TRIGGER", "type: session_event, config: {event_names: [go]}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "worker.md").write_text(WORKER)
    (tmp_path / "top.md").write_text(
        f"---\nbundle: {{name: host}}\n{ORCHESTRATOR.replace('CONFIG', 'x: 1')}{TOP}\n---\n"
    )
    (tmp_path / "field.md").write_text(f"---\nbundle: {{name: host}}\n{ORCHESTRATOR.replace('CONFIG', FIELD)}---\n")
    (tmp_path / "including.md").write_text("---\nbundle: {name: host}\nincludes: [./field.md]\n---\n")
    return tmp_path


async def say(bundle: Bundle, prompt: str, store: DurableStore, plugins: Plugins) -> Any:
    turn = await converse(bundle, prompt, store, plugins, working_dir=bundle.base_path)
    return json.loads(turn.output)


spellings = pytest.mark.parametrize(("file", "own"), [("top.md", None), ("field.md", ["w"]), ("including.md", ["w"])])


@spellings
async def test_an_orchestrator_sees_what_its_bundle_declares_and_those_of_children_do_not(
    file: str, own: Any, folder: Path, store: DurableStore, plugins: Plugins
) -> None:
    bundle = await load_bundle(str(folder / file))
    assert await say(bundle, "look", store, plugins) == [["w"], own]
    assert await say(bundle, "delegate", store, plugins) == [[], None]
    session = await (await bundle.prepare()).create_session(plugins=plugins)
    assert json.loads(await session.execute("look")) == [["w"], own]
    await session.cleanup()


@spellings
async def test_what_it_sees_can_be_started_as_it_is(
    file: str, own: Any, folder: Path, store: DurableStore, plugins: Plugins
) -> None:
    bundle = await load_bundle(str(folder / file))
    turn = await converse(bundle, "start", store, plugins, working_dir=folder)
    assert turn.output == "You said: do 1"


async def test_a_declared_session_of_the_bundle_itself_starts_nothing_in_its_turn(
    folder: Path, store: DurableStore, plugins: Plugins
) -> None:
    (folder / "top.md").write_text((folder / "top.md").read_text().replace("bundle: ./worker.md, ", ""))
    turn = await converse(await load_bundle(str(folder / "top.md")), "start", store, plugins, working_dir=folder)
    assert json.loads(turn.output) == [[], None]


@spellings
async def test_background_sessions_that_a_process_runs_are_not_started_again(
    file: str, own: Any, folder: Path, store: DurableStore, plugins: Plugins
) -> None:
    bundle = await load_bundle(str(folder / file))
    project = project_of(folder)
    with owner_lock({"bundles": ["other"], "projects": [project]}):
        assert await say(bundle, "look", store, plugins) == [["w"], own]
    async with run_background([bundle], store, plugins, working_dir=folder):
        shown, config = json.loads((folder / "mounted").read_text())  # to the session above those of the events
        assert (shown, "background_sessions" in config) == (None, False)
        assert await say(bundle, "look", store, plugins) == [[], None]
