"""One owner for a project's background work."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_foundation.paths import make_private
from amplifier_foundation.sessions.lock import holder_of, owner_lock, running_owner, running_owners, session_lock

HOLD = """
import sys
from amplifier_foundation.sessions.lock import owner_lock
with owner_lock({"bundles": ["demo"]}):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_second_owner_is_told_who_the_first_is() -> None:
    assert running_owner() is None
    with owner_lock({"bundles": ["demo"]}):
        told = rf"process {os.getpid()} runs demo since 20.* amplifier stop --all"
        with pytest.raises(SessionConflict, match=told), owner_lock({}):
            raise AssertionError("two owners")
        owner = running_owner()
        assert owner is not None
        assert (owner["pid"], owner["bundles"]) == (os.getpid(), ["demo"])
    assert running_owner() is None


def test_a_lock_ends_with_its_process_however_it_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert (running_owner() or {}).get("pid") == holder.pid
        holder.kill()
        holder.wait()
    assert running_owner() is None
    with owner_lock({}):
        assert running_owner() is not None


def test_lock_files_are_for_their_user_alone(home: Path) -> None:
    with owner_lock({}):
        [path] = (home / "locks").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_one_at_a_time_talks_in_a_session(home: Path) -> None:
    for _ in range(2):
        with session_lock("a-1"), session_lock("a-2"):
            told = rf"process {os.getpid()} talks in session 'a-1'.* amplifier run --fork a-1"
            with pytest.raises(SessionConflict, match=told), session_lock("a-1"):
                raise AssertionError("two talk in it")
    assert list((home / "locks" / "sessions").iterdir()) == []


@pytest.mark.parametrize("left", ["", '{"pid": 99999999}'])  # by a new session, and by a killed holder
def test_a_look_whether_somebody_talks_in_a_session_keeps_nobody_out(
    left: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_private(home / "locks" / "sessions") / "a-1"
    path.write_text(left)
    look = path.open("r+")
    fcntl.flock(look, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: look.close())
    with session_lock("a-1"):
        assert look.closed
        assert holder_of("a-1") == str(os.getpid())


@pytest.mark.usefixtures("home")
def test_an_owner_of_the_whole_data_folder_runs_alone() -> None:
    for first, second, told in (["/a"], [], "in /a"), ([], ["/a"], "in this data folder"):
        refused = pytest.raises(SessionConflict, match=told)
        with owner_lock({"projects": first}), refused, owner_lock({"projects": second}):
            pass
    with owner_lock({"projects": ["/a"]}), owner_lock({"projects": ["/b"]}):
        pass


def test_owners_of_two_containers_with_one_number_are_two() -> None:
    with owner_lock({"projects": ["/a"], "pid": 1}), owner_lock({"projects": ["/b"], "pid": 1}):
        assert [each["projects"] for each in running_owners()] == [["/a"], ["/b"]]


def test_a_project_whose_path_is_not_utf_8_has_its_own_lock() -> None:
    for project in (os.fsdecode(b"/a-\xff"), os.fsdecode(b"/a-\xfe")):
        with owner_lock({"projects": [project]}):
            assert (running_owner(project) or {}).get("projects") == [project]
