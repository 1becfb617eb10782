"""The observers: bursts, lost events, and the limits of the system."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from watchdog.events import FileDeletedEvent

from amplifier_trigger_file_watcher.change_detector import LINUX, explain
from amplifier_trigger_file_watcher.observing import BURST, FolderObserver

if LINUX:
    from watchdog.observers.inotify_c import (
        CallbackId,
        InotifyConstants,
        InotifyEvent,
        InotifyFD,
        Mask,
        WatchCallback,
        WatchDescriptor,
    )

    from amplifier_trigger_file_watcher.inotify_tree import InotifyTree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PROGRAM = """
import asyncio, sys
from pathlib import Path
from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

async def main():
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=Path(sys.argv[1])))
    trigger.configure(eval(sys.argv[2]))
    stream = trigger.watch()
    pending = asyncio.ensure_future(anext(stream))
    await trigger.ready()
    (Path(sys.argv[1]) / "a" / "new.txt").write_text("x")
    try:
        event = await asyncio.wait_for(pending, 60)
        await trigger.stop()
        print(event.change_type, event.file_path)
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""


def limited(limit: str, value: int, folder: Path, **config: object) -> list[str]:
    """Run a watcher where a limit of inotify is set, in a user namespace; return what it warns of, and says."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to set a limit for one process")
    script = f'echo {value} > /proc/sys/user/{limit} && exec "$0" "$@"'
    command = [
        unshare,
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        script,
        sys.executable,
        "-c",
        PROGRAM,
        str(folder),
        repr(config),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()[-80:]}")
    return [*done.stderr.splitlines(), *done.stdout.splitlines()]


TOO_MANY_FOLDERS = (
    "trigger-file-watcher: {} cannot be watched: the system's limit fs.inotify.max_user_watches is reached. "
    "Raise it with: sudo sysctl fs.inotify.max_user_watches=524288, or watch a smaller 'path'"
)


@pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
def test_too_many_folders_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    said = limited("max_inotify_watches", 3, tmp_path, polling=False)
    assert said == [f"TriggerError {TOO_MANY_FOLDERS.format(tmp_path)}"]


@pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
def test_too_many_folders_are_polled_unless_that_is_forbidden(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    said = limited("max_inotify_watches", 3, tmp_path, poll_interval=0.05, debounce_ms=20)
    warning = f"{TOO_MANY_FOLDERS.format(tmp_path)}. It is looked at every 0.05 s instead"
    assert said == [warning, "created a/new.txt"]


@pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
def test_too_many_watchers_are_polled_with_a_warning_that_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    warning, event = limited("max_inotify_instances", 0, tmp_path, poll_interval=0.05, debounce_ms=20)
    assert "Raise it with: sudo sysctl fs.inotify.max_user_instances=1024. It is looked at" in warning
    assert event == "created a/new.txt"


def test_an_error_names_any_other_fault_in_the_words_of_the_system() -> None:
    assert explain(OSError(errno.EIO, "Input/output error"), Path("src")) == "src cannot be watched: Input/output error"


async def observed(folder: Path, change: Callable[[], object], last: str) -> list[str]:
    """Return the paths that the observer of other systems notices of a change, up to `last`."""
    noticed: list[str] = []
    told = asyncio.Event()

    def notice(paths: dict[str, float]) -> None:
        noticed.extend(paths)
        if last in noticed:
            told.set()

    observer = FolderObserver(str(folder), notice, recursive=True)
    await observer.start()
    try:
        change()
        await asyncio.wait_for(told.wait(), 60)
    finally:
        await observer.stop()
    return noticed


async def test_watchdog_tells_of_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.txt").write_text("x")

    def change() -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "old" / "a.txt").rename(tmp_path / "old" / "b.txt")
        (tmp_path / "z.txt").write_text("x")

    noticed = await observed(tmp_path, change, "z.txt")
    assert {"new/", "old/a.txt", "old/b.txt", "z.txt"} <= set(noticed)


async def test_a_burst_that_the_system_may_have_cut_asks_for_a_look_at_everything(tmp_path: Path) -> None:
    noticed: list[str] = []
    observer = FolderObserver(str(tmp_path), noticed.extend, recursive=True)
    await observer.start()
    for number in range(BURST):
        observer.dispatch(FileDeletedEvent(str(tmp_path / f"{number}.txt")))
    await asyncio.sleep(0)
    await observer.stop()
    assert noticed.count("") == 1
    assert len(noticed) == BURST + 1


def observers(folder: Path, notice: Callable[[dict[str, float]], None]) -> Iterator[FolderObserver | InotifyTree]:
    yield FolderObserver(str(folder), notice, recursive=True)
    if LINUX:
        yield InotifyTree(str(folder), notice, every_write=True)


async def test_an_observer_that_was_stopped_before_it_started_does_not_start(tmp_path: Path) -> None:
    noticed: list[str] = []
    for observer in observers(tmp_path, noticed.extend):
        await observer.stop()
        await observer.start()
        observer.enter("")
        (tmp_path / "a.txt").write_text("x")
        await observer.stop()
    assert noticed == []


async def test_an_observer_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def held() -> tuple[set[str], int]:
        threads = {thread.name for thread in threading.enumerate() if "asyncio" not in thread.name}
        return threads, len(os.listdir("/proc/self/fd")) if LINUX else 0  # noqa: PTH208 - one call

    before = held()
    for observer in observers(tmp_path, lambda paths: None):
        await observer.start()
        observer.enter("")
        assert held() != before
        await observer.stop()
        assert held() == before


class Tree:
    """An observer of a tree on Linux, with the paths that it has noticed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.noticed = folder, asyncio.Queue[str]()
        self.observer = InotifyTree(str(folder), self.take, every_write=True)

    def take(self, paths: dict[str, float]) -> None:
        for path in paths:
            self.noticed.put_nowait(path)

    async def until(self, last: str) -> set[str]:
        """Return the noticed paths up to this one."""
        found: set[str] = set()
        while last not in found:
            found.add(await asyncio.wait_for(self.noticed.get(), 60))
        return found


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    if not LINUX:
        pytest.skip("inotify is Linux's")
    tree = Tree(tmp_path)
    await tree.observer.start()
    tree.observer.enter("")
    yield tree
    await tree.observer.stop()


def overflow(tree: Tree) -> None:
    """Keep watchdog's reader from reading until the system drops events."""
    with tree.observer._lock:  # the reader's callback waits for it
        for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 5_000):
            (tree.folder / f"{number % 2}.txt").touch()
            (tree.folder / f"{number % 2}.txt").unlink()


async def test_an_overflow_of_the_system_queue_asks_for_a_look_at_everything(tree: Tree) -> None:
    overflow(tree)
    await tree.until("")
    tree.observer.enter("")
    (tree.folder / "after.txt").touch()
    await tree.until("after.txt")


def test_watchdog_tells_its_callback_of_an_overflow() -> None:
    told: list[str] = []

    class Callback(WatchCallback):
        def on_queue_overflow(self) -> None:
            told.append("overflow")

        def on_event(self, event: InotifyEvent) -> None:
            told.append("event")

        def on_watch_deleted(self, wd: WatchDescriptor) -> None:
            told.append("deleted")

    reader = InotifyFD()
    reader.start()
    try:
        reader.add_callback(b"/", Mask(InotifyConstants.IN_CREATE), Callback(), CallbackId(1))
        lost = InotifyEvent(WatchDescriptor(-1), InotifyConstants.IN_Q_OVERFLOW, 0, b"")
        reader.handle_event(lost)
    finally:
        reader.stop()
        reader.join()
    assert told == ["overflow", "deleted"]


def test_a_lack_of_file_descriptors_is_no_limit_of_inotify() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        said = explain(OSError(errno.EMFILE, "Too many open files"), Path("/src"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert said == "/src cannot be watched: no file descriptor is free. Raise the limit: ulimit -n"


async def test_a_system_without_a_second_queue_says_so_to_the_next_walk(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cls: type[InotifyFD]) -> int:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(InotifyFD, "_create_inotify_fd", classmethod(refuse))
    tree.observer.on_queue_overflow()
    await tree.until("")
    with pytest.raises(OSError, match="instance limit"):
        tree.observer.enter("")


async def test_a_folder_entered_twice_or_under_a_new_name_is_noticed_once_under_its_last_name(tree: Tree) -> None:
    (tree.folder / "old").mkdir()
    for _ in range(3):
        tree.observer.enter("old/")
    (tree.folder / "old").rename(tree.folder / "new")
    tree.observer.enter("new/")
    await tree.until("new/")
    (tree.folder / "new" / "a.txt").touch()
    assert "old/a.txt" not in await tree.until("new/a.txt")


async def test_a_folder_that_left_is_not_noticed_any_more(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    (tree.folder / "box" / "deep").mkdir(parents=True)
    await tree.until("box/")
    for folder in ("box/", "box/deep/"):
        tree.observer.enter(folder)
    outside = (tree.folder / "box").rename(tmp_path_factory.mktemp("outside") / "box")
    await tree.until("box/")
    (outside / "deep" / "a.txt").touch()
    (tree.folder / "last.txt").touch()
    assert await tree.until("last.txt") == {"last.txt"}


async def test_a_link_to_a_folder_is_not_entered(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (tree.folder / "link").symlink_to(outside, target_is_directory=True)
    tree.observer.enter("link/")
    (outside / "a.txt").touch()
    (tree.folder / "last.txt").touch()
    assert await tree.until("last.txt") <= {"link", "last.txt"}
