"""A person with a home, a project, and the mounted tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.prompt_commands import CHANNEL, collect_commands, expand_command
from amplifier_tool_skills import mount


def write_skill(folder: Path, name: str, body: str = "Do it.", **front: str) -> Path:
    """Write a skill into a folder of skills, and return its own folder."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    lines = {
        "name": name,
        "description": f"Does {name}.",
        **{key.replace("_", "-"): text for key, text in front.items()},
    }
    shown = "\n".join(f"{key}: {text}" for key, text in lines.items())
    (skill / "SKILL.md").write_text(f"---\n{shown}\n---\n{body}\n", encoding="utf-8")
    return skill


def write_command(folder: Path, name: str, text: str) -> Path:
    """Write a command into a folder of commands: `git/commit` is `/git:commit`."""
    file = folder / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


class Session:
    """The tool of one session."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.tool: Any = coordinator.get("tools", "skill")

    async def prompt(self) -> str:
        """Begin a turn, and return the description of the tool."""
        await self.coordinator.hooks.emit("prompt:submit", {"prompt": "hello"})
        return str(self.tool.description)

    async def use(self, name: str, **more: str) -> str:
        """Return what a call gives, or why it fails."""
        result = await self.tool.execute({"name": name, **more})
        return str(result.output) if result.success else f"FAILED: {result.error['message']}"

    async def commands(self) -> dict[str, str]:
        """Return the commands with their descriptions."""
        found = await collect_commands(self.coordinator)
        assert found.problems == []
        return {f"{name} {each.hint}".strip(): each.description for name, each in found.offered.items()}

    async def type(self, name: str, argument: str = "") -> str:
        """Return the prompt that a command makes."""
        return await expand_command((await collect_commands(self.coordinator)).offered[name], argument)


Open = Callable[..., Awaitable[Session]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder; everything is trusted."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    monkeypatch.delenv("AMPLIFIER_SESSION", raising=False)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and the current one."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def person(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def open_session(project: Path) -> Open:
    """Return a function that mounts the tool in a session of the project, with folders of bundles."""

    async def opened(config: dict[str, Any] | None = None, bundles: dict[str, bool] | None = None) -> Session:
        coordinator = ModuleCoordinator(session_id="test")
        coordinator.register_capability("session.working_dir", str(project))
        coordinator.register_capability("bundle.folders", bundles or {})
        await mount(coordinator, config)
        assert CHANNEL in coordinator.channels
        return Session(coordinator)

    return opened
