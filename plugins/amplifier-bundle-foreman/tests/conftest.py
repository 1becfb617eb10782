"""The foreman's session in a program of its own, with workers that a test holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, hookimpl, load_plugins
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.background import BackgroundSessionManager
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker

PATIENCE = 20
WORKER = """---
bundle: {name: worker}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: "Did: {prompt}"}}}]
---
"""
RULES: list[dict[str, Any]] = [
    {
        "when": {"user": "^file (?P<title>.+)"},
        "call": {"tool": "issue", "input": {"operation": "create", "title": "{title}"}},
    },
    {"when": {"tool": "issue"}, "say": "{result}"},
]


class Held:
    """A runner whose sessions end when a test lets them, and that counts them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.done: list[str] = []
        self.at_work = 0
        self.most = 0

    async def run(self, request: Any, make_session: Any) -> str:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await self.go.wait()
        finally:
            self.at_work -= 1
        self.done.append(request.instruction)
        return "Done."


class HeldPlugin:
    """The plugin with the runner `runner-held`."""

    def __init__(self, held: Held) -> None:
        self.held = held

    @hookimpl
    def amplifier_register_runner(self, register: Any) -> None:
        register("runner-held", lambda: self.held)


class Program:
    """A program that has a foreman's session alone; `store` is None for one in memory."""

    def __init__(self, folder: Path, plugins: Plugins, store: DurableStore | None) -> None:
        self.folder, self.plugins, self.store = folder, plugins, store
        self.sessions: list[AmplifierSession] = []

    async def session(self, *, session_id: str | None = None, **given: Any) -> AmplifierSession:
        """Return an initialised session; the orchestrator gets `given`, but `declared` becomes the session's own."""
        config: dict[str, Any] = {
            "session": {"orchestrator": "orchestrator-foreman", "context": "context-simple"},
            "providers": [
                {
                    "module": "provider-playbook",
                    "config": {"rules": RULES, "otherwise": {"say": "You said: {prompt}"}},
                }
            ],
            "tools": [{"module": "tool-issue"}],
        }
        if (declared := given.pop("declared", None)) is not None:
            config["background_sessions"] = declared
        if given:
            config["session"]["orchestrator"] = {"module": "orchestrator-foreman", "config": given}
        session = AmplifierSession(config, plugins=self.plugins, session_id=session_id)
        session.coordinator.register_capability("session.working_dir", str(self.folder))
        if self.store is not None:
            session.coordinator.register_capability("session.storage", self.store)
        self.sessions.append(session)
        await session.initialize()
        return session


@pytest.fixture
def held() -> Held:
    """The runner `held` of the program."""
    return Held()


@pytest.fixture
def managers(monkeypatch: pytest.MonkeyPatch) -> list[BackgroundSessionManager]:
    """The managers made so far."""
    made: list[BackgroundSessionManager] = []
    make = BackgroundSessionManager.__init__

    def note(manager: BackgroundSessionManager, *arguments: Any, **given: Any) -> None:
        make(manager, *arguments, **given)
        made.append(manager)

    monkeypatch.setattr(BackgroundSessionManager, "__init__", note)
    return made


@pytest.fixture
async def program(tmp_path: Path, held: Held) -> AsyncIterator[Program]:
    """A program with a store on disk; in its folder is the bundle `worker.md`."""
    (tmp_path / "worker.md").write_text(WORKER)
    plugins = load_plugins(environ={})
    plugins.register(HeldPlugin(held), "held")
    store = open_inbox(plugins, path=tmp_path / "store" / "amplifier.db")
    made = Program(tmp_path, plugins, store)
    yield made
    for session in made.sessions:
        await session.cleanup()
    await store.close()


@pytest.fixture
def issues(program: Program) -> Tracker:
    """The issues of the program's project, as a person sees them."""
    return Tracker(documents_of(program.store, str(program.folder.resolve())))


@pytest.fixture
def declare(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a background session that does issues."""

    def make(name: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": name,
            "bundle": str(tmp_path / "worker.md"),
            "tracker": "issue",
            "triggers": [{"type": "issue_event"}],
            "instruction_template": "{issue_id}: {title}",
            **fields,
        }

    return make
