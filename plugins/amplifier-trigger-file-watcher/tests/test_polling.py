"""Looking again and again, and where that is needed."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.testing.clock import VirtualClock
from amplifier_trigger_file_watcher.mounts import find_around, read_mounts, silent_file_system

if TYPE_CHECKING:
    from collections.abc import Callable

    Watching = Callable[..., AbstractAsyncContextManager[Any]]

MOUNTS = rb"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/share rw,relatime shared:2 master:1 - nfs4 server:/export rw,vers=4.2
31 30 254:1 / /mnt/share/local rw - xfs /dev/vdb rw
32 22 0:27 / /mnt/with\040space rw - fuse.sshfs me@host:/ rw
33 22 254:2 / /mnt/stick rw - fuseblk /dev/sda1 rw
34 22 0:28 / /mnt/twice rw - cifs //server/share rw
35 34 254:3 / /mnt/twice rw - btrfs /dev/vdc rw
""".strip()


def find_silent(base: str, listed: bytes) -> str | None:
    return silent_file_system(base, find_around(base, read_mounts(listed)))


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("/home/me", None),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/below", "nfs4"),
        ("/mnt/shared", None),
        ("/mnt/share/local/x", None),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/mnt/stick", None),
        ("/mnt/twice", None),
    ],
)
def test_file_systems_that_tell_nothing_of_others_are_known(base: str, kind: str | None) -> None:
    assert find_silent(base, MOUNTS) == kind


def test_one_that_is_mounted_below_counts() -> None:
    assert find_silent("/mnt", b"\n".join(MOUNTS.split(b"\n")[:2])) == "nfs4"
    assert find_silent("/opt", MOUNTS) is None


@pytest.mark.parametrize("name", ["a\u00a0b", "a\u2028b", "a\rb", "a\x0cb", os.fsdecode(b"a\xe9b")])
def test_a_place_with_any_name_is_known(name: str) -> None:
    line = b"36 22 0:29 / /mnt/" + os.fsencode(name) + b" rw shared:1 - nfs4 server:/export rw\n"
    assert find_silent(f"/mnt/{name}/x", MOUNTS + b"\n" + line) == "nfs4"


async def test_a_polled_folder_fires_what_differs_from_one_look_to_the_next(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("x")
    async with watching(polling=True, poll_interval=0.02) as watcher:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "new.txt").write_text("x")
        assert await watcher.next_change() == ("created", "sub/new.txt")
        (tmp_path / "sub" / "new.txt").write_text("y")
        assert await watcher.next_change() == ("modified", "sub/new.txt")
        (tmp_path / "old.txt").unlink()
        assert await watcher.next_change() == ("deleted", "old.txt")


async def test_nothing_is_looked_at_before_the_interval_is_over(watching: Watching, tmp_path: Path) -> None:
    clock = VirtualClock()
    async with watching(clock=clock, polling=True, poll_interval=5.0, debounce_ms=1000) as watcher:
        (tmp_path / "a.txt").write_text("x")
        await clock.until_sleeping()
        await clock.advance(4.9)
        assert watcher.events.empty()
        await clock.advance(0.1)
        await clock.until_sleeping()
        assert watcher.events.empty()
        await clock.advance(1)
        assert await watcher.next_change() == ("created", "a.txt")
