"""A watched folder where file systems are mounted and unmounted, in a mount namespace of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from amplifier_trigger_file_watcher.change_detector import LINUX

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.skipif(not LINUX, reason="mount namespaces are Linux's"), pytest.mark.slow]

PROGRAM = """
import asyncio, json, subprocess, sys
from pathlib import Path
from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

folder = Path(sys.argv[1])

def mount(place):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / place], check=True)

def unmount(place):
    subprocess.run(["umount", folder / place], check=True)

async def main():
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=folder))
    trigger.configure({"debounce_ms": 20})
    stream = trigger.watch()
    pending = asyncio.ensure_future(anext(stream))
    await trigger.ready()

    async def changed():
        nonlocal pending
        event = await asyncio.wait_for(pending, 60)
        pending = asyncio.ensure_future(anext(stream))
        if not event.file_path.startswith("settled"):
            print(json.dumps([event.change_type, event.file_path]), flush=True)

    async def settle():
        "Let the watcher handle a change, and wait for the next one."
        (folder / f"settled-{asyncio.get_running_loop().time()}.txt").touch()
        await changed()

    STEPS
    await trigger.stop()

asyncio.run(main())
"""


def changes_in_namespace(folder: Path, steps: str) -> list[list[str]]:
    """Watch a folder in a mount namespace during some steps of a program; return what fired."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to mount without being root")
    command = [unshare, "--user", "--map-root-user", "--mount"]
    if subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode:
        pytest.skip("no mounts in user namespaces here")
    program = PROGRAM.replace("STEPS", steps.strip().replace("\n", "\n    "))
    done = subprocess.run(
        [*command, sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_file_system_mounted_over_the_folder_and_back_again_is_watched(tmp_path: Path) -> None:
    fired = changes_in_namespace(
        tmp_path,
        """
await settle()
mount(".")
(folder / "a.txt").write_text("x")
await changed()
await changed()
unmount(".")
await changed()
await changed()
await settle()
mount(".")
(folder / "b.txt").write_text("x")
await changed()
await changed()
await changed()
(folder / "b.txt").write_text("y")
await changed()
""",
    )
    assert fired == [["created", "a.txt"], ["deleted", "a.txt"], ["created", "b.txt"], ["modified", "b.txt"]]


def test_file_systems_below_the_folder_are_watched(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    fired = changes_in_namespace(
        tmp_path,
        """
await settle()
mount("sub/deep")
(folder / "sub/deep/a.txt").write_text("x")
await changed()
unmount("sub/deep")
mount("sub/deep")
await changed()
(folder / "sub/deep/b.txt").write_text("x")
await changed()
""",
    )
    assert fired == [["created", "sub/deep/a.txt"], ["deleted", "sub/deep/a.txt"], ["created", "sub/deep/b.txt"]]


def test_a_file_system_mounted_above_the_folder_hides_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    fired = changes_in_namespace(
        tmp_path,
        """
await settle()
mount("..")
await changed()
await changed()
folder.mkdir()
(folder / "b.txt").write_text("x")
await changed()
""",
    )
    assert fired == [["deleted", "a.txt"], ["created", "b.txt"]]
