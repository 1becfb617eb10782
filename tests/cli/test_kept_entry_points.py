"""The entry points of an unchanged environment are found without a scan of its distributions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.slow

SHOW = """
import sys
from amplifier_foundation.cli import invoke
invoke(["plugin", "list", "--json"])
print("importlib_metadata" in sys.modules, file=sys.stderr)
"""


@pytest.fixture
def site(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the import path with the plugin `extra`."""
    home.mkdir()
    folder = tmp_path / "site"
    about = folder / "amplifier_extra-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: amplifier-extra\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[amplifier]\nextra = amplifier_extra\n")
    (folder / "amplifier_extra.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return folder


def show() -> tuple[dict[str, str], str]:
    """Return the version of each plugin, and whether the library was imported to find it."""
    done = subprocess.run([sys.executable, "-c", SHOW], check=True, capture_output=True, text=True)
    plugins = json.loads(done.stdout)["data"]["plugins"]
    return {row["name"]: row["version"] for row in plugins}, done.stderr.splitlines()[-1]


def entries(home: Path) -> list[Path]:
    return sorted((home / "cache" / "entry-points").iterdir())


def test_a_second_command_finds_the_same_without_the_library(site: Path, home: Path) -> None:
    first, scanned = show()
    again, scanned_again = show()
    if scanned_again == "True":  # another program has changed a folder of the import path meanwhile
        again, scanned_again = show()
    assert (first["extra"], scanned, scanned_again) == ("1.0", "True", "False")
    assert again == first
    assert {oct(entry.stat().st_mode & 0o777) for entry in entries(home)} == {"0o600"}


def test_a_removed_plugin_is_gone_and_a_changed_one_is_found_anew(site: Path) -> None:
    show()
    about = site / "amplifier_extra-1.0.dist-info"
    (about / "entry_points.txt").write_text("[amplifier]\nrenamed = amplifier_extra\n")
    (about / "METADATA").write_text("Name: amplifier-extra\nVersion: 2.0.1\n")
    changed, _ = show()
    assert (changed.get("extra"), changed.get("renamed")) == (None, "2.0.1")
    shutil.rmtree(about)
    assert "renamed" not in show()[0]


def test_changed_code_of_a_plugin_runs(site: Path, amplifier: Run) -> None:
    show()
    (site / "amplifier_extra.py").write_text("raise ValueError('a new mistake')\n")
    assert "a new mistake" in amplifier("plugin", "list", "--load").stdout


@pytest.mark.parametrize("values", [None, {}, {"entries": 5}, {"entries": [["extra"]]}, {"entries": [[1, 2, 3, 4, 5]]}])
def test_a_damaged_entry_is_ignored(values: object, site: Path, home: Path) -> None:
    first, _ = show()
    for entry in entries(home):
        entry.write_text(json.dumps({**json.loads(entry.read_text()), "values": values}))
    assert show() == (first, "True")
    assert show() == (first, "False")
    for entry in entries(home):
        entry.write_text("garbage")
    assert show() == (first, "True")


def test_without_a_data_folder_nothing_is_kept(site: Path, home: Path, amplifier: Run) -> None:
    home.rmdir()
    assert amplifier("--version").returncode == 0
    assert not home.exists()
