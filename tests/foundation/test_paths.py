"""Make folders private, and say when one was open to others."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from amplifier_foundation.paths import BUNDLE_FILES, find_absence, make_private
from amplifier_tool_delegate.bundle_paths import FILE_NAMES
from tests.dead_mounts import fuse_mount, needs_fuse, unreachable


def test_delegate_knows_the_names_of_a_bundles_file() -> None:
    assert FILE_NAMES == BUNDLE_FILES  # it imports the kernel alone


def test_a_new_folder_is_private_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    folder = make_private(tmp_path / "data" / "sub")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]
    make_private(folder)
    assert caplog.messages == []


def test_a_folder_that_was_open_is_made_private_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    for _ in range(2):
        assert make_private(folder) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert caplog.messages == [f"{folder}: was open to others (mode 0755), is now private (0700)"]


def test_a_folder_is_there_or_gone_or_out_of_reach(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.touch()
    found = [find_absence(each) for each in (folder, file, tmp_path / "none", file / "none", "\0", "relative")]
    assert found == ["", "is gone", "is gone", "is gone", "", ""]
    with unreachable(folder):
        assert find_absence(folder) == "cannot be reached (File name too long)"
    assert find_absence(folder) == ""


@needs_fuse
def test_a_folder_on_a_dead_mount_is_out_of_reach(tmp_path: Path) -> None:
    with fuse_mount(tmp_path) as kill:
        assert find_absence(tmp_path) == ""
        kill()
        assert find_absence(tmp_path) == "cannot be reached (Transport endpoint is not connected)"
