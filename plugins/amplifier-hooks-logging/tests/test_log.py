"""What a session logs: its events, in order, as they were emitted, and when they are written."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.events import ALL_EVENTS
from amplifier_core.models import HookResult

pytestmark = pytest.mark.slow


def names(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


async def test_a_turn_is_logged_event_by_event(session: Any, log: Path, read: Any) -> None:
    made = session(("tool:pre", {"tool_name": "read"}), ("tool:post", {"tool_name": "read", "result": "text"}))
    await made.execute("hello")
    await made.cleanup()
    lines = read(log)
    assert names(lines) == [
        "session:start",
        "prompt:submit",
        "tool:pre",
        "tool:post",
        "orchestrator:complete",
        "session:end",
    ]
    assert lines[1]["data"]["prompt"] == "hello"
    assert lines[3]["data"]["result"] == "text"


async def test_a_line_says_when_how_grave_what_and_of_which_session(session: Any, log: Path, read: Any) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    await session(session_id="child", parent_id="parent", events=["prompt:submit"]).execute("hello")
    [line] = read(log)
    assert list(line) == ["ts", "lvl", "schema", "session_id", "parent_id", "event", "data"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("ts"))
    assert before <= datetime.fromisoformat(line["data"].pop("timestamp")) <= datetime.now(UTC)
    assert line == {
        "lvl": "INFO",
        "schema": {"name": "amplifier.log", "ver": "1.0.0"},
        "session_id": "child",
        "parent_id": "parent",
        "event": "prompt:submit",
        "data": {"prompt": "hello"},
    }


async def test_a_session_without_a_parent_names_none(session: Any, log: Path, read: Any) -> None:
    await session().execute("hello")
    assert all("parent_id" not in line and "parent_id" not in line["data"] for line in read(log))


@pytest.mark.parametrize(
    ("event", "data", "level"),
    [
        ("tool:pre", {}, "INFO"),
        ("tool:pre", {"lvl": "DEBUG"}, "DEBUG"),
        ("tool:pre", {"lvl": ["no level"]}, "INFO"),
        ("tool:error", {}, "ERROR"),
        ("execution:end", {"status": "error"}, "ERROR"),
        ("provider:retry", {}, "WARNING"),
        ("content_block:delta", {}, "DEBUG"),
    ],
)
async def test_a_level_is_what_the_event_says_or_else_what_it_is(
    event: str, data: dict[str, Any], level: str, session: Any, log: Path, read: Any
) -> None:
    await session((event, data), events=[event]).execute("hello")
    assert [line["lvl"] for line in read(log)] == [level]


async def test_events_of_other_modules_are_logged_when_they_are_announced(session: Any, log: Path, read: Any) -> None:
    story = [("recipe:start", {"n": 1}), ("recipe:approval", {}), ("recipe:secret", {}), ("recipe:step", {"n": 2})]
    await session(*story).execute("hello")
    assert names(read(log))[2:-1] == ["recipe:start", "recipe:approval", "recipe:step"]


@pytest.mark.parametrize(
    ("config", "logged"),
    [
        ({"events": ["tool:*"]}, ["tool:pre", "tool:post"]),
        ({"events": ["tool:post", "recipe:*"]}, ["recipe:start", "tool:post"]),
        ({"events": ["recipe:secret"]}, ["recipe:secret"]),
        ({"events": ["recipe:secret", "tool:*"], "exclude": ["recipe:secret"]}, ["tool:pre", "tool:post"]),
        ({"exclude": ["recipe:*", "session:*", "tool:pre"]}, ["prompt:submit", "tool:post", "orchestrator:complete"]),
        ({"events": []}, []),
    ],
)  # fmt: skip
async def test_a_configuration_chooses_events_by_name_and_by_beginning(
    config: dict[str, Any], logged: list[str], session: Any, log: Path, read: Any
) -> None:
    story = [("tool:pre", {}), ("recipe:start", {}), ("recipe:secret", {}), ("tool:post", {})]
    await session(*story, **config).execute("hello")
    assert (names(read(log)) if log.exists() else []) == logged


async def test_an_event_is_handed_on_as_it_was(session: Any) -> None:
    made, seen = session(), []
    await made.initialize()
    hooks = made.coordinator.hooks
    hooks.register("tool:pre", lambda event, data: seen.append(data))
    result = await hooks.emit("tool:pre", {"api_key": "abc", "tool_input": {"deep": ("tuple", {1})}, "raw": 1})
    assert result.action == "continue"
    assert seen[0] is result.data
    assert {**seen[0], "timestamp": ""} == {
        "session_id": "s",
        "parent_id": None,
        "timestamp": "",
        "api_key": "abc",
        "tool_input": {"deep": ("tuple", {1})},
        "raw": 1,
    }


async def test_an_event_that_another_hook_refuses_or_changes_is_logged_as_it_was(
    session: Any, log: Path, read: Any
) -> None:
    made = session(("tool:pre", {"tool_name": "rm"}), ("tool:post", {"result": "as it was"}))

    async def refuse(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="no")

    async def change(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={"result": "changed"})

    made.coordinator.hooks.register("tool:pre", refuse, priority=-999)
    made.coordinator.hooks.register("tool:post", change, priority=-999)
    await made.execute("hello")
    assert [line["data"].get("tool_name") or line["data"]["result"] for line in read(log)[2:4]] == ["rm", "as it was"]


async def test_what_a_hook_does_to_the_data_later_is_not_in_the_line(session: Any, log: Path, read: Any) -> None:
    data = {"tool_input": {"path": "a"}}
    made = session(("tool:pre", data), events=["tool:pre"])
    made.coordinator.hooks.register("tool:pre", lambda event, data: data["tool_input"].update(path="b"))
    await made.execute("hello")
    assert read(log)[0]["data"]["tool_input"] == {"path": "a"}


async def test_nothing_is_written_before_the_end_of_a_turn_or_64_kib_are_waiting(
    session: Any, log: Path, read: Any
) -> None:
    made = session()
    await made.initialize()
    emit = made.coordinator.hooks.emit
    for _ in range(6):
        await emit("tool:post", {"result": "x" * 10_000})
    assert not log.exists()
    await emit("tool:post", {"result": "x" * 10_000})
    assert len(read(log)) == 7
    await emit("tool:post", {})
    assert len(read(log)) == 7
    await emit("prompt:complete", {})
    assert len(read(log)) == 9


@pytest.mark.parametrize(
    "ending", ["prompt:complete", "execution:end", "orchestrator:complete", "cancel:completed", "session:end"]
)
async def test_the_end_of_a_turn_writes_what_waits_also_when_it_is_not_logged_itself(
    ending: str, session: Any, log: Path, read: Any
) -> None:
    made = session(events=["tool:pre"])
    await made.initialize()
    await made.coordinator.hooks.emit("tool:pre", {})
    await made.coordinator.hooks.emit(ending, {})
    assert names(read(log)) == ["tool:pre"]


async def test_cleanup_writes_what_waits_and_leaves_no_handler(session: Any, log: Path, read: Any) -> None:
    made = session(parent_id="p")
    await made.initialize()
    assert set(ALL_EVENTS) | {"recipe:start"} <= set(made.coordinator.hooks.list_handlers())
    await made.coordinator.cleanup()
    assert names(read(log)) == ["session:fork"]
    assert made.coordinator.hooks.list_handlers() == {}


async def test_a_session_that_is_resumed_goes_on_with_its_log(session: Any, log: Path, read: Any) -> None:
    for prompt in ("first", "second"):
        made = session(events=["prompt:submit"])
        await made.execute(prompt)
        await made.cleanup()
    assert [line["data"]["prompt"] for line in read(log)] == ["first", "second"]


async def test_sessions_side_by_side_keep_their_own_logs(session: Any, work: Path, read: Any) -> None:
    made = [session(("tool:pre", {"n": n}), session_id=f"s{n}", path="{session_id}/log") for n in range(5)]
    await asyncio.gather(*(each.execute(each.session_id) for each in made))
    for each in made:
        lines = read(work / each.session_id / "log")
        assert {line["session_id"] for line in lines} == {each.session_id}
        assert names(lines) == ["session:start", "prompt:submit", "tool:pre", "orchestrator:complete"]


async def test_files_and_folders_are_their_owner_s_alone(session: Any, work: Path) -> None:
    (work / "open").mkdir(mode=0o755)
    (work / "open" / "old.jsonl").touch(mode=0o644)
    await session(path="open/old.jsonl").execute("hello")
    await session(path="open/new/deep/events.jsonl", max_bytes=300).execute("hello")
    paths = [work / "open" / name for name in ("", "old.jsonl", "new", "new/deep", "new/deep/events.jsonl")]
    paths.append(work / "open/new/deep/events.jsonl.1")
    assert [oct(stat.S_IMODE(path.stat().st_mode)) for path in paths] == ["0o755"] + [
        "0o600" if path.is_file() else "0o700" for path in paths[1:]
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
async def test_a_log_of_another_user_is_written_and_keeps_its_mode(session: Any, work: Path, read: Any) -> None:
    log = work / "foreign.jsonl"
    log.touch()
    log.chmod(0o666)
    os.chown(log, 1, 1)
    await session(path="foreign.jsonl").execute("hello")
    assert (len(read(log)) > 0, oct(stat.S_IMODE(log.stat().st_mode))) == (True, "0o666")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/events.jsonl", "Not a directory"),
        ("folder", "Is a directory"),
        ("/dev/null", "it is not a regular file"),
        ("looping/events.jsonl", "Too many levels of symbolic links"),
    ],
)
async def test_a_log_that_cannot_be_written_is_told_once_and_the_session_goes_on(
    path: str, reason: str, session: Any, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (work / "file").touch()
    (work / "folder").mkdir()
    (work / "looping").symlink_to("looping")
    mode = Path("/dev/null").stat().st_mode
    made = session(path=path)
    assert [await made.execute(prompt) for prompt in ("one", "two")] == ["told", "told"]
    await made.cleanup()
    [record] = [record for record in caplog.records if record.name.startswith("amplifier_hooks_logging")]
    assert record.levelno == logging.WARNING
    assert str(work / path) in record.message
    assert reason in record.message
    assert "name another file with 'path'" in record.message
    assert Path("/dev/null").stat().st_mode == mode


async def test_a_working_folder_that_is_no_place_is_told_too(
    session: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session()
    made.coordinator.register_capability("session.working_dir", "~nobody-has-this-name/work")
    assert await made.execute("hello") == "told"
    [record] = [record for record in caplog.records if record.name.startswith("amplifier_hooks_logging")]
    assert "events.jsonl cannot be written (Could not determine home directory.)" in record.message


async def test_a_log_that_can_be_written_again_is_written_again(
    session: Any, work: Path, log: Path, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log.mkdir()
    made = session(events=["prompt:submit"])
    await made.execute("lost")
    log.rmdir()
    await made.execute("kept")
    assert [line["data"]["prompt"] for line in read(log)] == ["kept"]
    assert len(caplog.records) == 1
