"""Test which files are closed to others."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from amplifier_core.utils.private_files import close_to_others

if TYPE_CHECKING:
    from pathlib import Path


def close(path: Path) -> tuple[bool, int]:
    """Return the answer for a file, and its mode afterwards."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return close_to_others(descriptor), stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("mode", "after"), [(0o644, 0o600), (0o666, 0o600), (0o600, 0o600), (0o700, 0o700)])
def test_a_file_of_the_user_is_made_private(mode: int, after: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    assert close(file) == (True, after)


def test_a_pipe_keeps_its_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    assert close(tmp_path / "pipe") == (True, 0o666)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_file_of_another_user_keeps_its_mode_and_is_told_as_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    os.chown(file, 1, 1)
    file.chmod(0o622)
    assert close(file) == (False, 0o622)
