"""One owner for a project's background work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_foundation.lock import project_lock, running_owners

HOLD = """
import sys
from amplifier_foundation.lock import project_lock
with project_lock(sys.argv[1], {"bundles": ["demo"]}):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_second_owner_is_told_who_the_first_is() -> None:
    with project_lock("/project", {"bundles": ["demo"]}):
        told = rf"/project is run by process {os.getpid()} since 20"
        with pytest.raises(SessionConflict, match=told), project_lock("/project", {}):
            raise AssertionError("two owners")
        [owner] = running_owners()
        assert (owner["pid"], owner["bundles"]) == (os.getpid(), ["demo"])
        with project_lock("/another", {}):
            assert len(running_owners()) == 2
    assert running_owners() == []


def test_a_lock_ends_with_its_process_however_it_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, "/project"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [owner["pid"] for owner in running_owners()] == [holder.pid]
        holder.kill()
        holder.wait()
    assert running_owners() == []
    with project_lock("/project", {}):
        assert len(running_owners()) == 1


def test_lock_files_are_for_their_user_alone(home: Path) -> None:
    with project_lock("/project", {}):
        [path] = (home / "locks").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
