"""The working folder of the process, which tools of several sessions may change."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.events import TOOL_POST, TOOL_PRE
from amplifier_core.hooks import HookRegistry
from amplifier_core.triggers import TriggerContext
from amplifier_foundation.background import working_folder
from amplifier_foundation.background.tasks import run_beside
from amplifier_foundation.background.working_folder import WorkingFolder
from amplifier_foundation.paths import find_absence
from tests.dead_mounts import fuse_mount, needs_fuse


class Tools:
    """The hooks of a session, called as its tools begin and end."""

    def __init__(self, folder: WorkingFolder, session_id: str) -> None:
        self.hooks = HookRegistry()
        self.cleanups: list[Any] = []
        coordinator = SimpleNamespace(hooks=self.hooks, register_cleanup=self.cleanups.append)
        session: Any = SimpleNamespace(session_id=session_id, coordinator=coordinator)
        folder.observe(session)

    async def begin(self, name: str) -> None:
        await self.hooks.emit(TOOL_PRE, {"tool_name": name, "tool_call_id": f"call-{name}"})

    async def end(self, name: str) -> None:
        await self.hooks.emit(TOOL_POST, {"tool_name": name, "tool_call_id": f"call-{name}"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkingFolder:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return WorkingFolder()


async def test_the_folder_is_put_back_when_no_tool_runs_and_the_tools_are_named(
    folder: WorkingFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Tools(folder, "one"), Tools(folder, "two")
    await one.begin("leave")
    await two.begin("stay")
    os.chdir(tmp_path)
    await two.end("stay")
    assert (Path.cwd(), caplog.messages) == (tmp_path, [])  # 'leave' may need it
    await one.end("leave")
    assert Path.cwd() == folder.path
    [told] = caplog.messages
    assert told.endswith(
        f"was {tmp_path} after one of the tools 'leave', 'stay'; it was put back to {tmp_path / 'project'}"
    )
    await one.begin("stay")
    await one.end("stay")
    assert len(caplog.messages) == 1


async def test_a_tool_that_never_ended_counts_until_its_session_ends(folder: WorkingFolder, tmp_path: Path) -> None:
    tools = Tools(folder, "one")
    await tools.begin("leave")
    os.chdir(tmp_path)
    for cleanup in tools.cleanups:
        await cleanup()
    assert Path.cwd() == folder.path


async def test_a_replaced_folder_is_entered_unless_a_tool_has_left_it(folder: WorkingFolder, tmp_path: Path) -> None:
    folder.path.rename(tmp_path / "old")
    with pytest.raises(FileNotFoundError):
        folder.follow()
    folder.path.mkdir()
    assert folder.follow() == folder.path
    assert os.path.samestat(Path().stat(), folder.path.stat())
    os.chdir(tmp_path)
    folder.path.rmdir()
    folder.path.mkdir()
    folder.follow()
    assert Path.cwd() == tmp_path


@needs_fuse
async def test_a_folder_that_is_mounted_again_is_entered_and_no_tool_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(working_folder, "LOOK_EVERY", 0.001)
    project = tmp_path / "project"
    project.mkdir()
    with fuse_mount(project) as kill:
        monkeypatch.chdir(project)
        folder = WorkingFolder()
        tools = Tools(folder, "one")
        async with run_beside(folder.keep(), "working folder"):
            kill()
            await tools.begin("stay")
            await tools.end("stay")
            assert TriggerContext("name").working_dir in (Path(), project)
            with fuse_mount(project):
                while find_absence(f"/proc/{os.getpid()}/cwd"):
                    await asyncio.sleep(0.001)
                assert os.path.samestat(Path().stat(), project.stat())
                os.chdir(tmp_path)
    assert caplog.messages == []
