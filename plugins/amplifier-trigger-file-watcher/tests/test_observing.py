"""The observer: bursts, and the limits of the system."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from watchdog.events import FileDeletedEvent

from amplifier_trigger_file_watcher.inotify import InotifyObserver
from amplifier_trigger_file_watcher.observing import BURST, FolderObserver
from amplifier_trigger_file_watcher.senses import explain

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
        event = await asyncio.wait_for(pending, 10)
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


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_too_many_folders_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    said = limited("max_inotify_watches", 3, tmp_path, polling=False)
    assert said == [f"TriggerError {TOO_MANY_FOLDERS.format(tmp_path)}"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_too_many_folders_are_polled_unless_that_is_forbidden(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    said = limited("max_inotify_watches", 3, tmp_path, poll_interval=0.05, debounce_ms=20)
    warning = f"{TOO_MANY_FOLDERS.format(tmp_path)}. It is looked at every 0.05 s instead"
    assert said == [warning, "created a/new.txt"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_too_many_watchers_are_polled_with_a_warning_that_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    warning, event = limited("max_inotify_instances", 0, tmp_path, poll_interval=0.05, debounce_ms=20)
    assert "Raise it with: sudo sysctl fs.inotify.max_user_instances=1024. It is looked at" in warning
    assert event == "created a/new.txt"


def test_another_fault_of_the_system_is_told_in_its_words() -> None:
    assert explain(OSError(errno.EIO, "Input/output error"), Path("src")) == "src cannot be watched: Input/output error"


async def observed(folder: Path, change: Callable[[], object], last: str) -> list[str]:
    """Return what watchdog, which is asked on other systems, tells of a change, until it tells of `last`."""
    noticed: list[str] = []
    told = asyncio.Event()

    def notice(paths: list[str]) -> None:
        noticed.extend(paths)
        if last in noticed:
            told.set()

    observer = FolderObserver(str(folder), notice, recursive=True)
    await observer.start()
    try:
        change()
        await asyncio.wait_for(told.wait(), 10)
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
    for _ in range(BURST):
        observer.dispatch(FileDeletedEvent(str(tmp_path / "a.txt")))
    await asyncio.sleep(0)
    await observer.stop()
    assert noticed.count("") == 1
    assert noticed.count("a.txt") == BURST


async def test_an_observer_that_was_stopped_before_it_started_does_not_start(tmp_path: Path) -> None:
    noticed: list[str] = []
    for observer in (
        FolderObserver(str(tmp_path), noticed.extend, recursive=True),
        InotifyObserver(str(tmp_path), noticed.extend, written=True),
    ):
        await observer.stop()
        await observer.start()
        observer.enter("")
        (tmp_path / "a.txt").write_text("x")
        await observer.stop()
    assert noticed == []
