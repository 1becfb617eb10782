"""Folders that a command closes, so that nobody sees the repository in them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LOOK = """
import os, sys
from amplifier_core.permissions import find_named_by_git, is_secret, read_regular, what_obeys
from amplifier_sandbox.protection import find_guarded, hold_new_repositories
folder = sys.argv[1]
find_guarded(folder, lambda kind, path: False)
if os.geteuid() == 0:
    os.setuid(65534)  # for root, nothing is closed
before = find_guarded(folder, lambda kind, path: False)
exec(sys.argv[2])
print(hold_new_repositories(folder, before, find_guarded(folder, lambda kind, path: False, before)))
"""
PLANT = """
import os
os.makedirs(f"{folder}/sub/.git/objects"); os.makedirs(f"{folder}/sub/.git/refs")
open(f"{folder}/sub/.git/HEAD", "w").write("ref: refs/heads/main\\n")
open(f"{folder}/sub/.git/config", "w").write("[core]\\n\\tfsmonitor = ./run\\n")
os.chmod(f"{folder}/sub", 0o%o)
"""


@pytest.mark.parametrize("mode", [0o311, 0o555, 0o000])
def test_a_repository_in_a_closed_folder_is_found_and_moved_aside(mode: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    if os.geteuid() == 0:
        os.chown(work, 65534, -1)
        for above in (tmp_path, *tmp_path.parents):
            above.chmod(above.stat().st_mode | 0o011)
    command = [sys.executable, "-c", LOOK, str(work), PLANT % mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "sub/.git would run programs on your machine: it is now" in done.stdout, done.stderr
    assert not (work / "sub" / ".git").exists()
