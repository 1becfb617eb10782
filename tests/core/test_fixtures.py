"""The fixtures for tests of packages: time, files, plugins, sessions and kills."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.hookspecs import hookimpl
from amplifier_core.models import ToolResult
from amplifier_core.testing import check_storage_kills

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from amplifier_core.plugins import Plugins
    from amplifier_core.testing import SessionRun, SimulatedFiles, VirtualClock


class Words:
    name, description = "words", "Count words."
    input_schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(output=f"{len(input['text'].split())} words")


class Offering:
    @hookimpl
    def amplifier_register_trigger(self, register: Any) -> None:
        register("trigger-here", object)

    @hookimpl
    def amplifier_register_bundle(self, register: Any) -> None:
        register("here", Path(__file__))


async def test_a_session_calls_a_tool_under_test(
    run_session: Callable[..., Awaitable[SessionRun]], playbook: Callable[..., dict[str, Any]]
) -> None:
    rules = [
        {"when": {"user": "^count"}, "call": {"tool": "words", "input": {"text": "two words"}}},
        {"when": {"tool": "words"}, "say": "There are {result}."},
    ]
    run = await run_session("count them", tools=[Words()], providers=[playbook(rules)])
    assert run.text == "There are 2 words."
    assert run.calls == [("words", {"text": "two words"})]
    assert [message["role"] for message in run.messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_session_mounts_modules_under_test_in_the_folder_of_the_test(
    run_session: Callable[..., Awaitable[SessionRun]], tmp_path: Path
) -> None:
    seen: list[str] = []

    async def mount(coordinator: Any, config: dict[str, Any]) -> None:
        seen.append(coordinator.get_capability("session.working_dir"))

    run = await run_session("hello", mounts=[mount])
    assert (run.text, seen) == ("You said: hello", [str(tmp_path)])
    with pytest.raises(RuntimeError, match="unknown module 'loop-of-nobody'"):
        await run_session("hello", plan={"session": {"orchestrator": "loop-of-nobody", "context": "context-simple"}})


def test_plugins_are_those_of_the_test_alone(plugins_with: Callable[..., Plugins]) -> None:
    plugins = plugins_with(Offering())
    assert list(plugins.triggers) == ["trigger-here"]
    assert list(plugins.registry_of("bundle")) == ["here"]
    assert list(plugins_with().triggers) == []


async def test_files_change_and_their_events_are_there(
    simulated_files: SimulatedFiles, virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    created = simulated_files.write("deep/app.py", "x")
    await virtual_clock.advance(60)
    modified = simulated_files.write("deep/app.py", "y")
    assert (tmp_path / "deep" / "app.py").read_text() == "y"
    moved = simulated_files.move("deep/app.py", "new/app.py")
    deleted = simulated_files.delete("new/app.py")
    events = [created, modified, *moved, deleted]
    assert simulated_files.events == events
    assert [event.data["path"] for event in events] == [event.file_path for event in events]
    assert deleted.data["change"] == "deleted"
    assert [(event.change_type, event.file_path) for event in events] == [
        ("created", "deep/app.py"),
        ("modified", "deep/app.py"),
        ("deleted", "deep/app.py"),
        ("created", "new/app.py"),
        ("deleted", "new/app.py"),
    ]
    assert (modified.timestamp - created.timestamp).total_seconds() == 60
    assert len({event.dedupe_key for event in events}) == 5


def test_work_is_killed_before_each_of_its_steps_on_disk(
    crash_points: Callable[..., Iterator[int]], tmp_path: Path
) -> None:
    def work() -> None:
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(tmp_path / "kept")
        (tmp_path / "done").mkdir()

    seen = []
    for step in crash_points(work):
        seen.append((step, sorted(path.name for path in tmp_path.iterdir())))
    assert seen == [(1, []), (2, ["new"]), (3, ["kept"]), (4, ["done", "kept"])]


def test_work_that_fails_or_never_ends_is_told(
    crash_points: Callable[..., Iterator[int]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match="the work fails before its step 1 on disk: see stderr"):
        list(crash_points(lambda: 1 / 0))
    assert "ZeroDivisionError" in capfd.readouterr().err
    with pytest.raises(AssertionError, match="the work takes more than 3 steps on disk"):
        list(crash_points(lambda: [(tmp_path / str(number)).mkdir(exist_ok=True) for number in range(9)], most=3))


class Files:
    """A storage with a file for each session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        new = self.folder / f"{session_id}.{os.getpid()}"
        new.write_text(json.dumps([transcript, metadata]))
        new.replace(self.folder / f"{session_id}.json")

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        transcript, metadata = json.loads((self.folder / f"{session_id}.json").read_text())
        return transcript, metadata

    def exists(self, session_id: str) -> bool:
        return (self.folder / f"{session_id}.json").exists()


class InTwoSteps(Files):
    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        super().save(session_id, transcript, {})
        super().save(session_id, transcript, metadata)


def test_a_storage_that_renames_survives_each_kill(tmp_path: Path) -> None:
    assert check_storage_kills(lambda: Files(tmp_path)) == 3


def test_a_storage_with_half_a_session_after_a_kill_is_told(tmp_path: Path) -> None:
    rule = "a kill in save, before its step 3 on disk, must leave the new session whole, or none"
    with pytest.raises(AssertionError, match=rule):
        check_storage_kills(lambda: InTwoSteps(tmp_path))
