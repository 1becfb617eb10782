"""Several writers of one file: sessions of one process and of others, and somebody else's editor."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_tool_filesystem import locking, mount
from amplifier_tool_filesystem.folder import Folder
from amplifier_tool_filesystem.locking import lock_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SESSION = """
import asyncio, sys
from amplifier_core import ModuleCoordinator
from amplifier_tool_filesystem import mount

async def main():
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", sys.argv[1])
    await mount(coordinator)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(25):
        old = f"{sys.argv[2]}{number}.\\n"
        edit = {"file_path": "a.txt", "old_string": old, "new_string": f"done {old}"}
        assert (await coordinator.get("tools", "edit_file").execute(edit)).success

asyncio.run(main())
"""


class Saver:
    """The capability `session.undo`, whose `keep` comes between the look at a file and its write."""

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save

    async def keep(self, path: str, after: str, before: bytes | None) -> None:
        self._save()


async def session(work: Path, undo: Saver | None = None) -> Any:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    if undo is not None:
        coordinator.register_capability("session.undo", undo)
    await mount(coordinator)

    async def call(tool: str, **given: Any) -> Any:
        return await coordinator.get("tools", tool).execute({"file_path": "a.txt", **given})

    return call


def test_edits_of_one_file_by_two_processes_are_all_there(work: Path) -> None:
    file = work / "a.txt"
    file.write_text("".join(f"A{number}.\nB{number}.\n" for number in range(25)))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SESSION, str(work), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "AB"
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate() and child.returncode for child in children] == [0, 0]
    assert file.read_text() == "".join(f"done A{number}.\ndone B{number}.\n" for number in range(25))
    assert [path.name for path in work.iterdir()] == ["a.txt"]


async def test_an_edit_is_planned_anew_when_an_editor_saves_the_file_meanwhile(work: Path) -> None:
    file, texts = work / "a.txt", ["mine\ntheirs 1\n", "mine\ntheirs 2\n"]
    file.write_text("mine\n")

    def save() -> None:
        if texts:
            (work / "new").write_text(texts.pop(0))
            (work / "new").rename(file)

    call = await session(work, Saver(save))
    assert (await call("edit_file", old_string="mine", new_string="ours")).success
    assert file.read_text() == "ours\ntheirs 2\n"


async def test_a_known_file_that_is_changed_just_before_its_replacement_is_not_replaced(work: Path) -> None:
    file, texts = work / "a.txt", ["", "theirs\n"]

    def save() -> None:
        if text := texts.pop(0):
            file.write_text(text)

    call = await session(work, Saver(save))
    assert (await call("write_file", content="one\n")).success
    assert (await call("write_file", content="two\n")).error["type"] == "ChangedSinceRead"
    assert file.read_text() == "theirs\n"


async def test_a_change_of_metadata_alone_holds_no_write_up(work: Path) -> None:
    file, times = work / "a.txt", list[int]()
    file.write_text("one\n")

    def touch() -> None:
        changed = file.stat().st_ctime_ns
        while file.stat().st_ctime_ns == changed:  # the clock of a file system ticks in milliseconds
            os.utime(file, ns=(0, file.stat().st_mtime_ns))
        times.append(changed)

    call = await session(work, Saver(touch))
    assert (await call("write_file", content="two\n")).success
    assert (len(times), file.read_text()) == (1, "two\n")


async def test_a_file_that_somebody_else_writes_all_the_time_is_given_up(work: Path) -> None:
    file = work / "a.txt"
    file.write_text("mine\n")
    call = await session(work, Saver(lambda: file.write_text(file.read_text() + "theirs\n") and None))
    failed = await call("edit_file", old_string="mine", new_string="ours")
    assert (failed.error["type"], "try it again later" in failed.error["message"]) == ("ChangedSinceRead", True)
    assert file.read_text().startswith("mine\ntheirs\n")


@pytest.mark.parametrize("tool", ["edit_file", "write_file"])
async def test_a_write_waits_for_the_lock_of_another_session(work: Path, tool: str) -> None:
    (work / "a.txt").write_text("one\n")
    given = {"content": "two\n"} if tool == "write_file" else {"old_string": "one", "new_string": "two"}
    folder, call = Folder(work), await session(work)
    async with asyncio.TaskGroup() as tasks:
        async with lock_file(folder, folder.resolve("a.txt")):
            writing = tasks.create_task(call(tool, **given))
            await asyncio.wait([writing], timeout=0.1)
            assert not writing.done()
        assert (await writing).success
    assert (work / "a.txt").read_text() == "two\n"


async def test_a_lock_that_another_program_keeps_holds_a_write_up_for_a_while_alone(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a.txt").write_text("one\n")
    monkeypatch.setattr(locking, "LONGEST_WAIT", 0.05)
    with (work / "a.txt").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        assert (await (await session(work))("edit_file", old_string="one", new_string="two")).success
    assert (work / "a.txt").read_text() == "two\n"
