"""Writes of files that somebody else has changed, or that the session has never read."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.transcript import Transcript
from amplifier_foundation.sessions.file_changes import FileChanges, read_changes, read_content
from amplifier_tool_filesystem import mount, writing


async def tools(work: Path, history: Any = None, **config: Any) -> Any:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    if history is not None:
        coordinator.register_capability("session.transcript", history)
    await mount(coordinator, config)

    async def call(tool: str, **given: Any) -> Any:
        result = await coordinator.get("tools", tool).execute({"file_path": "a.txt", **given})
        return "ok" if result.success else result.error["type"]

    return call


def change(path: Path, text: str) -> None:
    """Write as somebody else does, at a later time."""
    path.write_text(text)
    later = path.stat().st_mtime_ns + 10_000_000
    os.utime(path, ns=(later, later))


@pytest.fixture
def file(work: Path) -> Path:
    (work / "a.txt").write_text("one\n")
    return work / "a.txt"


async def test_by_default_a_file_is_replaced_unread(work: Path, file: Path) -> None:
    call = await tools(work)
    assert await call("write_file", content="two\n") == "ok"


async def test_a_file_that_the_session_wrote_is_not_replaced_after_somebody_else_changed_it(
    work: Path, file: Path
) -> None:
    call = await tools(work)
    assert await call("write_file", content="two\n") == "ok"
    change(file, "two\ntheirs\n")
    assert await call("write_file", content="three\n") == "ChangedSinceRead"
    assert await call("edit_file", old_string="two", new_string="ours") == "ok"
    assert await call("write_file", content="three\n") == "ChangedSinceRead"  # the edit has not shown the other line
    assert file.read_text() == "ours\ntheirs\n"
    history = Transcript([told("write_file", datetime.now(UTC) - timedelta(hours=1), created=True)])
    assert await (await tools(work, history))("write_file", content="three\n") == "ChangedSinceRead"


async def test_a_file_that_was_read_is_not_replaced_after_somebody_else_changed_it(work: Path, file: Path) -> None:
    call = await tools(work)
    await call("read_file")
    change(file, "theirs\n")
    assert await call("write_file", content="two\n") == "ChangedSinceRead"
    assert file.read_text() == "theirs\n"
    assert await call("edit_file", old_string="theirs", new_string="ours") == "ok"  # it keeps what it does not name
    await call("read_file")
    assert await call("write_file", content="two\n") == "ok"
    assert await call("write_file", content="three\n") == "ok"  # its own write is no change of somebody else


@pytest.mark.parametrize("strict", [True, False])
async def test_a_file_that_somebody_else_writes_with_the_same_content_is_as_the_session_saw_it(
    work: Path, file: Path, strict: bool
) -> None:
    call = await tools(work, read_before_write=strict)
    await call("read_file", limit=1)
    (work / "new").write_text("one\n")
    (work / "new").rename(file)
    assert await call("edit_file", old_string="one", new_string="two") == "ok"
    assert await call("write_file", content="three\n") == "ok"
    change(file, "three\n")
    assert await call("write_file", content="four\n") == "ok"
    change(file, "five\n")
    assert await call("write_file", content="six\n") == "ChangedSinceRead"


async def test_of_a_file_too_large_to_edit_the_inode_the_size_and_the_time_are_compared(
    work: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "EDIT_LIMIT", 3)
    call = await tools(work)
    await call("read_file")
    change(file, "one\n")
    assert await call("write_file", content="two\n") == "ChangedSinceRead"
    await call("read_file")
    assert await call("write_file", content="two\n") == "ok"


@pytest.mark.parametrize(
    ("tool", "given"),
    [("write_file", {"content": "two\n"}), ("edit_file", {"old_string": "one", "new_string": "two"})],
)
async def test_strictly_an_existing_file_must_be_read_first_as_it_is_now(
    work: Path, file: Path, tool: str, given: dict[str, Any]
) -> None:
    call = await tools(work, read_before_write=True)
    assert await call(tool, **given) == "NotRead"
    await call("read_file", limit=1)
    change(file, "one and theirs\n")
    assert await call(tool, **given) == "ChangedSinceRead"
    await call("read_file")
    assert await call(tool, **given) == "ok"


async def test_strictly_a_new_file_and_the_sessions_own_need_no_reading(work: Path) -> None:
    call = await tools(work, read_before_write=True)
    assert await call("write_file", content="one\n") == "ok"
    assert await call("edit_file", old_string="one", new_string="two") == "ok"
    (work / "a.txt").unlink()
    assert await call("write_file", content="three\n") == "ok"


def told(name: str, when: datetime, **output: Any) -> dict[str, Any]:
    content = json.dumps({"file_path": "a.txt", **output})
    return {"role": "tool", "name": name, "content": content, "metadata": {"timestamp": when.isoformat()}}


@pytest.mark.parametrize("strict", [True, False])
async def test_a_resumed_session_and_a_fork_know_what_their_history_has_read(
    work: Path, file: Path, strict: bool
) -> None:
    now = datetime.now(UTC)
    history = Transcript(
        [{"role": "user", "content": "go"}, told("read_file", now + timedelta(seconds=1), content="one\n")]
    )
    call = await tools(work, history.fork(), read_before_write=strict)
    assert await call("write_file", content="two\n") == "ok"
    change(file, "theirs\n")
    assert await call("write_file", content="three\n") == "ChangedSinceRead"

    old = Transcript([told("read_file", now - timedelta(hours=1), content="one\n")])
    call = await tools(work, old, read_before_write=strict)
    assert await call("write_file", content="four\n") == "ChangedSinceRead"
    os.utime(file, (1_600_000_000, 1_600_000_000))  # as of a copy with its time, or from an archive
    assert await call("write_file", content="four\n") == "ChangedSinceRead"


async def test_a_failed_read_in_the_history_counts_for_nothing(work: Path, file: Path) -> None:
    failed = {**told("read_file", datetime.now(UTC) + timedelta(seconds=1)), "content": "a.txt is a binary file"}
    image = {**told("read_file", datetime.now(UTC) + timedelta(seconds=1)), "content": [{"type": "text", "text": "x"}]}
    call = await tools(work, Transcript([failed, image]), read_before_write=True)
    assert await call("write_file", content="two\n") == "NotRead"


class Editor:
    """The files of an editor, which writes them to disk; `unsaved` is text that is not there yet."""

    writes = True

    def __init__(self) -> None:
        self.unsaved: dict[str, str] = {}

    async def read_text(self, path: str) -> str:
        return self.unsaved.get(path) or Path(path).read_text()

    async def write_text(self, path: str, text: str) -> None:
        self.unsaved.pop(path, None)
        Path(path).write_text(text)


async def test_in_an_editor_unsaved_text_of_the_person_is_neither_lost_nor_missing_in_the_undo(
    work: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    coordinator, editor = ModuleCoordinator(session_id="test"), Editor()
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.register_capability("client.files", editor)
    coordinator.register_capability("session.undo", FileChanges("edited"))
    await mount(coordinator)
    read, write = (coordinator.get("tools", name) for name in ("read_file", "write_file"))
    await read.execute({"file_path": "a.txt"})
    editor.unsaved[str(file.resolve())] = "typed\n"
    refused = await write.execute({"file_path": "a.txt", "content": "two\n"})
    assert refused.error["type"] == "ChangedSinceRead"
    assert (await read.execute({"file_path": "a.txt"})).output["content"] == "typed\n"
    assert (await write.execute({"file_path": "a.txt", "content": "two\n"})).success
    [change] = read_changes("edited")
    assert change.before is not None
    assert (read_content("edited", change.before), file.read_text()) == (b"typed\n", "two\n")


async def test_in_an_editor_that_formats_what_it_saves_a_file_can_be_written_again(work: Path, file: Path) -> None:
    class Formatting(Editor):
        async def write_text(self, path: str, text: str) -> None:
            await super().write_text(path, text + "\n")

    coordinator, editor = ModuleCoordinator(session_id="test"), Formatting()
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.register_capability("client.files", editor)
    await mount(coordinator)
    write = coordinator.get("tools", "write_file")
    assert (await write.execute({"file_path": "a.txt", "content": "two"})).success
    assert (await write.execute({"file_path": "a.txt", "content": "three"})).success
    assert file.read_text() == "three\n"
    editor.unsaved[str(file.resolve())] = "typed\n"
    refused = await write.execute({"file_path": "a.txt", "content": "four"})
    assert refused.error["type"] == "ChangedSinceRead"


async def test_in_an_editor_whose_files_cannot_be_read_back_a_write_is_none_the_less_done(
    work: Path, file: Path
) -> None:
    class Closing(Editor):
        async def write_text(self, path: str, text: str) -> None:
            await super().write_text(path, text)
            self.unsaved[path] = "\ud800"  # no text that UTF-8 has bytes for

    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.register_capability("client.files", Closing())
    await mount(coordinator)
    written = await coordinator.get("tools", "write_file").execute({"file_path": "a.txt", "content": "two\n"})
    assert (written.success, file.read_text()) == (True, "two\n")


async def test_in_an_editor_a_resumed_session_does_not_replace_what_was_saved_since(work: Path, file: Path) -> None:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    coordinator.register_capability("client.files", Editor())
    history = Transcript([told("write_file", datetime.now(UTC) - timedelta(hours=1), created=True)])
    coordinator.register_capability("session.transcript", history)
    await mount(coordinator)
    refused = await coordinator.get("tools", "write_file").execute({"file_path": "a.txt", "content": "two\n"})
    assert (refused.error["type"], file.read_text()) == ("ChangedSinceRead", "one\n")
