"""Folders and files without permission for a while: they are no deleted ones, and fire once they are readable."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_trigger_file_watcher import fingerprints, trigger
from amplifier_trigger_file_watcher.change_detector import LINUX
from amplifier_trigger_file_watcher.manifest import Manifest
from amplifier_trigger_file_watcher.unreadable import Unreadable

if LINUX:
    from amplifier_trigger_file_watcher.inotify_tree import InotifyTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Watching = Callable[..., AbstractAsyncContextManager[Any]]

pytestmark = pytest.mark.usefixtures("plain_user")
POLLING = pytest.mark.parametrize("polling", ["auto", True])


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """Return a closed folder with two files."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("x")
    folder.chmod(0)
    yield folder
    if folder.exists():
        folder.chmod(0o755)


def problem_of(folder: Path) -> str:
    return (
        f"{folder} cannot be read: Permission denied. Changes in it fire when it can be; "
        "make it readable for this user, or leave it out with 'ignore'"
    )


@POLLING
async def test_a_folder_that_is_opened_later_is_watched_from_then_on(
    watching: Watching, tmp_path: Path, polling: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(polling=polling, poll_interval=0.02) as watcher:
        (tmp_path / "in").mkdir(mode=0)
        async with asyncio.timeout(60):
            while watcher.problems != [problem_of(tmp_path / "in")]:
                assert await watcher.changes() == []
        (tmp_path / "in").chmod(0o755)
        (tmp_path / "in" / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "in/a.txt")
        (tmp_path / "in" / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", "in/b.txt")
        assert watcher.problems == [problem_of(tmp_path / "in"), None]
    assert caplog.messages == [f"trigger-file-watcher: {problem_of(tmp_path / 'in')}"]


@POLLING
async def test_the_watched_folder_itself_may_be_opened_later(
    watching: Watching, tmp_path: Path, closed: Path, polling: Any
) -> None:
    async with watching(path="in", polling=polling, poll_interval=0.02) as watcher:
        async with asyncio.timeout(60):
            while watcher.problems != [problem_of(closed)]:
                await asyncio.sleep(0.001)
        assert watcher.events.empty()
        closed.chmod(0o755)
        assert sorted([await watcher.next_change(), await watcher.next_change()]) == [
            ("created", "in/a.txt"),
            ("created", "in/b.txt"),
        ]
        (closed / "c.txt").write_text("x")
        assert await watcher.next_change() == ("created", "in/c.txt")


@POLLING
async def test_the_files_of_a_closed_folder_are_not_deleted_at_a_restart(
    watching: Watching, tmp_path: Path, closed: Path, polling: Any
) -> None:
    closed.chmod(0o755)
    async with watching() as watcher:
        pass
    closed.chmod(0)
    async with watching(state=watcher.state, polling=polling, poll_interval=0.02) as watcher:
        assert await watcher.changes() == []
        closed.chmod(0o755)
        (closed / "a.txt").write_text("y")
        assert await watcher.next_change() == ("modified", "in/a.txt")
        (closed / "b.txt").unlink()
        assert await watcher.next_change() == ("deleted", "in/b.txt")


@POLLING
@pytest.mark.parametrize("mode", [0, 0o400, 0o100])
async def test_a_folder_that_is_closed_for_a_while_fires_for_what_changed_meanwhile(
    watching: Watching, tmp_path: Path, closed: Path, polling: Any, mode: int
) -> None:
    closed.chmod(0o755)
    async with watching(polling=polling, poll_interval=0.02) as watcher:
        with (closed / "a.txt").open("r+") as file:
            closed.chmod(mode)
            watcher.trigger._detector._notice({"": 0.0})
            async with asyncio.timeout(60):
                while not watcher.problems:
                    await asyncio.sleep(0.001)
            file.write("written while it is closed")
        assert await watcher.changes() == []
        closed.chmod(0o755)
        (closed / "b.txt").unlink()
        changes = sorted([await watcher.next_change(), await watcher.next_change()])
        assert changes == [("deleted", "in/b.txt"), ("modified", "in/a.txt")]


async def test_the_files_of_a_closed_folder_that_is_gone_are_deleted(
    watching: Watching, tmp_path: Path, closed: Path
) -> None:
    closed.chmod(0o755)
    async with watching() as watcher:
        pass
    closed.chmod(0)
    async with watching(state=watcher.state, poll_interval=0.02, ignore=["away/"]) as watcher:
        closed.rename(tmp_path / "away")
        assert sorted([await watcher.next_change(), await watcher.next_change()]) == [
            ("deleted", "in/a.txt"),
            ("deleted", "in/b.txt"),
        ]
        assert watcher.problems[1:] == [None]
    (tmp_path / "away").chmod(0o755)


async def test_a_folder_above_that_is_closed_is_waited_for_and_its_files_stay_known(
    watching: Watching, tmp_path: Path, closed: Path
) -> None:
    closed.chmod(0o755)
    (closed / "src").mkdir()
    (closed / "src" / "a.txt").write_text("x")
    async with watching(path="in/src") as watcher:
        pass
    closed.chmod(0)
    async with watching(path="in/src", state=watcher.state) as watcher:
        assert watcher.problems == [f"{closed / 'src'} cannot be reached: Permission denied; it is waited for"]
        closed.chmod(0o755)
        (closed / "src" / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", "in/src/b.txt")
        assert watcher.problems[1:] == [None]


async def test_a_folder_that_is_waited_for_as_closed_and_is_then_gone_fires_its_files(
    watching: Watching, tmp_path: Path, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger, "ABSENCE", 0.1)
    closed.chmod(0o755)
    (closed / "src").mkdir()
    (closed / "src" / "a.txt").write_text("x")
    async with watching(path="in/src") as watcher:
        pass
    closed.chmod(0)
    async with watching(path="in/src", state=watcher.state) as watcher:
        closed.rename(tmp_path / "away")
        assert await watcher.next_change() == ("deleted", "in/src/a.txt")
        assert watcher.problems[1:] == [f"{closed / 'src'} does not exist; it is waited for"]
    (tmp_path / "away").chmod(0o755)


async def test_a_file_whose_content_is_closed_is_no_changed_one(watching: Watching, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    async with watching() as watcher:
        pass
    (tmp_path / "a.txt").chmod(0)
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == []
        (tmp_path / "a.txt").chmod(0o644)
        assert await watcher.changes() == []
        assert watcher.problems == []


async def test_a_file_that_came_without_the_right_to_read_it_fires_again_with_the_right(
    watching: Watching, tmp_path: Path
) -> None:
    async with watching(poll_interval=0.02) as watcher:
        file = os.open(tmp_path / "a.txt", os.O_CREAT | os.O_WRONLY, 0)
        os.write(file, b"x")
        os.close(file)
        assert await watcher.next_change() == ("created", "a.txt")
        (tmp_path / "a.txt").chmod(0o644)
        assert await watcher.next_change() == ("modified", "a.txt")
        assert watcher.problems == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_file_of_a_server_that_does_not_answer_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "a.txt").write_text("x")
    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    manifest.begin()
    (tmp_path / "a.txt").unlink()

    def fail(path: str) -> os.stat_result:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fingerprints.os, "stat", fail)
        assert manifest.compare(["a.txt"]) == []
        assert manifest.unreadable.list_problems() == [("a.txt", os.strerror(code))]
        assert manifest.unreadable.take_readable() == []
    assert manifest.unreadable.take_readable() == ["a.txt"]
    assert [change.kind for change in manifest.compare(["a.txt"])] == ["deleted"]


def test_a_closed_file_of_an_open_folder_stands_for_itself_alone(tmp_path: Path) -> None:
    """Access lists of a server close one file, and no folder."""
    (tmp_path / "m.txt").write_text("x")
    unreadable = Unreadable(f"{tmp_path}{os.sep}")
    unreadable.add("m.txt", PermissionError(errno.EACCES, "Permission denied"))
    assert unreadable.list_problems() == [("m.txt", "Permission denied")]
    assert not unreadable.covers("n.txt")


def test_a_folder_without_the_right_to_watch_it_is_looked_at(tmp_path: Path) -> None:
    """A security module may forbid that alone."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")

    def enter(folder: str) -> None:
        if folder == "in/":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    manifest.entering = enter
    manifest.begin()
    assert list(manifest.files) == ["in/a.txt"]
    (tmp_path / "in" / "b.txt").write_text("x")
    assert manifest.unreadable.list_problems() == []
    assert manifest.unreadable.take_readable() == ["in/"]
    assert [change.path for change in manifest.compare(["in/"])] == ["in/b.txt"]
    assert manifest.unreadable.take_readable() == ["in/"]


@pytest.mark.skipif(not LINUX, reason="no file elsewhere has such an error")
def test_a_content_with_an_error_of_its_device_is_unreadable_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    manifest.begin()
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").symlink_to("/proc/self/mem")  # nothing is at its first byte
    assert manifest.compare(["a.txt"]) == []
    assert manifest.unreadable.list_problems() == [("a.txt", os.strerror(errno.EIO))]
    assert manifest.unreadable.take_readable() == []
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").write_text("y")
    assert manifest.unreadable.take_readable() == ["a.txt"]
    assert [change.kind for change in manifest.compare(["a.txt"])] == ["modified"]


async def test_a_file_with_a_bad_block_behind_its_beginning_is_told_once_until_it_can_be_read(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    class BadBlock:
        """A file whose first block can be read, and no other."""

        def __enter__(self) -> BadBlock:
            return self

        def __exit__(self, *error: object) -> None:
            """Hold nothing."""

        def read(self) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open_bad(path: str, mode: str, **given: Any) -> Any:
        reads.append(path)
        return BadBlock()

    async with watching(poll_interval=0.02) as watcher:
        with monkeypatch.context() as patch:
            patch.setattr(fingerprints, "open", open_bad, raising=False)
            (tmp_path / "a.txt").write_text("x")
            async with asyncio.timeout(60):
                while len(reads) < 5:
                    await asyncio.sleep(0.001)
        assert await watcher.next_change() == ("created", "a.txt")
    file = tmp_path / "a.txt"
    assert watcher.problems == [
        f"{file} cannot be read: {os.strerror(errno.EIO)}. Changes in it fire when it can be; "
        "check its disk or server, or leave it out with 'ignore'",
        None,
    ]


def test_an_entry_whose_kind_cannot_be_read_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems list names alone: the kind is asked for afterwards."""

    class Entry:
        name = "a.txt"

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    monkeypatch.setattr(manifest, "_list", lambda folder: [Entry()])
    assert manifest.compare([""]) == []
    assert manifest.unreadable.list_problems() == [("a.txt", os.strerror(errno.EIO))]


@pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
async def test_a_closed_folder_is_told_to_the_walker(tmp_path: Path, closed: Path) -> None:
    """Else a folder opened between the watch and the look would never be watched."""
    tree = InotifyTree(str(tmp_path), lambda paths: None, every_write=True)
    await tree.start()
    try:
        with pytest.raises(PermissionError):
            tree.enter("in/")
    finally:
        await tree.stop()
