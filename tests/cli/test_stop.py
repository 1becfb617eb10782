"""What `amplifier stop` ends, and what it says when there is nothing to end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import SessionConflict
from amplifier_foundation.background.asking import ask
from amplifier_foundation.background.control import socket_path
from amplifier_foundation.cli import exits, invoke, stop
from amplifier_foundation.paths import project_of
from amplifier_foundation.sessions.lock import owner_lock
from tests.dead_mounts import unreachable


@pytest.mark.parametrize("arguments", [["reviewer"], ["--all"]])
def test_there_is_nothing_to_stop_when_nothing_runs(
    arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["stop", *arguments]) == exits.NOT_FOUND
    assert capsys.readouterr().err == "amplifier: nothing runs. Start something with: amplifier up BUNDLE\n"


@pytest.mark.parametrize("arguments", [[], ["reviewer", "--all"]])
def test_it_must_be_said_what_is_to_stop(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["stop", *arguments]) == exits.USAGE
    assert "amplifier ps" in capsys.readouterr().err


async def test_a_process_whose_folder_is_gone_is_named_with_a_way_to_end_it(
    running: Any, say: Any, background: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    project = background.parent
    assert f"nothing runs in this folder, but in: {project}. Go there" in (await say("stop", "--all"))[2]
    project.rename(tmp_path / "moved")
    code, _, err = await say("stop", "--all")
    (tmp_path / "moved").rename(project)
    assert (code, err) == (
        exits.CONFLICT,
        f"amplifier: nothing runs in this folder. The folder {project} of process {os.getpid()} is gone; end that one "
        f"with: kill {os.getpid()}\n",
    )
    with unreachable(project):
        assert f"{project} of process {os.getpid()} cannot be reached (File name" in (await say("stop", "--all"))[2]


@pytest.mark.parametrize("name", ["asked", "echo/asked", "bg-asked-0001"])
async def test_one_background_session_stops_and_the_others_run_on(name: str, running: Any, say: Any) -> None:
    told: list[str] = []
    running.control.tell = told.append
    code, out, err = await say("stop", name)
    assert (code, out) == (exits.OK, "")
    assert err.startswith("echo/asked is stopped\n")
    assert told == ["asked is to stop, as another process asks"]
    status = {row["name"]: row["status"] for row in running.up.manager.get_status().values()}
    assert status == {"asked": "stopped", "broken": "running", "careful": "running", "holding": "running"}


async def test_an_unknown_name_stops_nothing(running: Any, say: Any) -> None:
    code, _, err = await say("stop", "asket")
    assert code == exits.NOT_FOUND
    assert "no background session 'asket'; did you mean 'asked'? There are: asked, broken, careful, holding" in err
    assert len(running.up.manager.get_status()) == 4


async def test_stopping_everything_waits_and_says_what_for(
    running: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "LATE", 0.0)
    monkeypatch.setattr(stop, "_wait_for_end", gone_when(running.stop_asked))
    await running.up.manager.fire("holding", {})
    await running.until("holding", "session")
    [work] = [each for row in running.up.manager.get_status().values() for each in row["running"]]
    code, _, err = await say("stop", "--all")
    assert code == exits.OK
    assert f"waits for running sessions: {work}" in err
    assert "has ended.\n" in err


def gone_when(asked: asyncio.Event) -> Any:
    """Return what finds the process gone at the second look, when it was asked to stop: this one lives on."""
    looks: list[int] = []

    def gone(pid: int, seconds: float) -> bool:
        looks.append(pid)
        return len(looks) > 1 and asked.is_set()

    return gone


STRANGER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit("signalled"))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has a process with the number of another one")
def test_a_stranger_with_the_number_of_a_process_in_another_container_gets_no_signal(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", STRANGER], **pipes) as stranger,
        closing(socket.socket(socket.AF_UNIX)) as hanging,
    ):
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"ready\n"
        path = socket_path()
        hanging.bind(str(path))
        hanging.listen()
        facts = {"projects": [project_of()], "pid": stranger.pid, "socket": str(path)}
        with owner_lock(facts):
            with pytest.raises(SessionConflict, match="it may be stopped, or hang, and is not in this container"):
                ask(facts, "status", patience=0.01)
            hanging.close()
            assert invoke(["stop", "--all", "--timeout", "0"]) == exits.CONFLICT
        assert f"process {stranger.pid} is gone from here, but its lock is held: by" in capsys.readouterr().err
        stranger.communicate(b"")
        assert stranger.returncode == 0
