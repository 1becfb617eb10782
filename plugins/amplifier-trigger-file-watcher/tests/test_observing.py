"""The observer: bursts, and the limits of the system."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from watchdog.events import FileDeletedEvent

from amplifier_trigger_file_watcher.observing import BURST, FolderObserver
from amplifier_trigger_file_watcher.trigger import _explain

PROGRAM = """
import asyncio, sys
from pathlib import Path
from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

async def main():
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=Path(sys.argv[1])))
    trigger.configure({})
    try:
        await anext(trigger.watch())
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""


def limited(limit: str, value: int, folder: Path) -> str:
    """Run a watcher in a user namespace of its own, where a limit of inotify can be set; return what it says."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to set a limit for one process")
    script = f'echo {value} > /proc/sys/user/{limit} && exec "$0" "$@"'
    command = [unshare, "--user", "--map-root-user", "sh", "-c", script, sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()[-80:]}")
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_too_many_folders_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    said = limited("max_inotify_watches", 3, tmp_path)
    assert said == (
        f"TriggerError trigger-file-watcher: {tmp_path} cannot be watched: the system's limit "
        "fs.inotify.max_user_watches is reached. Raise it with: sudo sysctl fs.inotify.max_user_watches=524288, "
        "or watch a smaller 'path'"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_too_many_watchers_are_an_error_that_names_the_limit(tmp_path: Path) -> None:
    said = limited("max_inotify_instances", 0, tmp_path)
    assert said.endswith("Raise it with: sudo sysctl fs.inotify.max_user_instances=1024")


def test_another_fault_of_the_system_is_told_in_its_words() -> None:
    assert (
        _explain(OSError(errno.EIO, "Input/output error"), Path("src")) == "src cannot be watched: Input/output error"
    )


def test_a_burst_that_the_kernel_may_have_cut_asks_for_a_look_at_everything(tmp_path: Path) -> None:
    noticed: list[str] = []
    observer = FolderObserver(str(tmp_path), noticed.append, recursive=True)
    for _ in range(BURST):
        observer.dispatch(FileDeletedEvent(str(tmp_path / "a.txt")))
    assert noticed.count("") == 1
    assert noticed.count("a.txt") == BURST


def test_an_observer_that_was_stopped_before_it_started_does_not_start(tmp_path: Path) -> None:
    noticed: list[str] = []
    observer = FolderObserver(str(tmp_path), noticed.append, recursive=True)
    observer.stop()
    observer.start()
    (tmp_path / "a.txt").write_text("x")
    observer.stop()
    assert noticed == []
