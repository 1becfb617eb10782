"""The folders that a Python in a sandbox may read: its own and those of packages, never the home folder."""

from __future__ import annotations

import json
import os
import site
import sys
from pathlib import Path

import pytest

import amplifier_core
from amplifier_foundation.isolation.python_folders import choose_below, find_python_folders


def test_python_and_every_installed_package_are_below_them() -> None:
    folders = find_python_folders()
    for file in (
        json.__file__,
        pytest.__file__,
        amplifier_core.__file__,
        sys.executable,
        os.path.realpath(sys.executable),
    ):
        assert choose_below([str(file)], folders), file


def test_none_holds_the_home_folder_and_none_is_below_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "packages"
    (tmp_path / "home" / "project").mkdir(parents=True)
    place.mkdir()
    (place / "own.pth").write_text(f"import os\n# a note\n{tmp_path}\n{tmp_path}/home/project\n../gone\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(place)])
    folders = find_python_folders()
    assert {str(place), f"{tmp_path}/home/project"} <= set(folders)
    assert str(tmp_path) not in folders
    assert [each for each in folders if choose_below([each], set(folders) - {each})] == []


def test_each_link_to_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("../shims/python")
    (tmp_path / "shims").mkdir()
    (tmp_path / "shims" / "python").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert {f"{tmp_path}/bin/python", f"{tmp_path}/shims/python"} <= set(find_python_folders())
