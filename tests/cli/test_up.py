"""`amplifier up` as a process: what it tells, what it obeys, and how it runs in the background."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.storage import Tally
from amplifier_foundation import Activity, load_bundle
from amplifier_foundation.cli import detaching, exits, invoke
from amplifier_foundation.cli.up import Stopper, beside
from amplifier_foundation.cli.view import RunView
from amplifier_foundation.lock import running_owner

COUNTS = ["waiting", "at", "work", "done", "dead"]
PROGRAM = [sys.executable, "-m", "amplifier_foundation"]


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a service manager listens."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("notify")
        receiver.settimeout(30)
        yield receiver


def test_sigterm_lets_what_is_at_work_finish_and_the_service_manager_is_told(
    background: Path, notified: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(background.parent)
    told = {"NOTIFY_SOCKET": "../notify", "WATCHDOG_USEC": "40000"}
    assert invoke(["trigger", "fire", "holding"]) == exits.OK
    with subprocess.Popen(
        [*PROGRAM, "up"], env={**os.environ, **told}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun it\n"
        messages = [notified.recv(1000) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        while (message := notified.recv(1000)) == b"WATCHDOG=1":
            pass
        Path("go").touch()
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (exits.TERMINATED, "")
    assert sorted(messages) == [b"READY=1\nSTATUS=echo", b"WATCHDOG=1", b"WATCHDOG=1"]
    assert message == b"STOPPING=1"
    assert Path("ended-it").exists()
    assert "✓ holding      held" in out


def test_it_runs_in_the_background_until_it_is_told_to_stop(
    background: Path, home: Path, amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "logs" / "up.log"
    log.parent.mkdir(parents=True)
    with log.open("wb") as old:
        old.truncate(detaching.LARGEST + 1)
    done = amplifier("up", "--detach")
    try:
        owner = running_owner()
        assert owner is not None
        assert (done.returncode, done.stderr) == (exits.OK, "")
        assert done.stdout.startswith(f"Process {owner['pid']} runs echo in {background.parent}.\n")
        assert os.getsid(owner["pid"]) == owner["pid"]
        assert (log.stat().st_mode & 0o777, (home / "logs" / "up.log.1").exists()) == (0o600, True)

        again = amplifier("up", "--detach")
        assert again.returncode == exits.CONFLICT
        assert f"process {owner['pid']} runs echo since" in again.stderr
        assert again.stderr.endswith("amplifier: it did not start, and ended with 6 (conflict)\n")

        with subprocess.Popen([*PROGRAM, "logs", "-f", "asked"], stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert invoke(["trigger", "fire", "asked", "--data", '{"what": "hello"}']) == exits.OK
            lines = [following.stdout.readline() for _ in range(3)]
            following.send_signal(signal.SIGINT)
            assert following.wait(30) == exits.INTERRUPTED
        assert [line.split()[1:3] for line in lines] == [["●", "asked"], ["▶", "asked"], ["✓", "asked"]]
        assert lines[2].endswith("You said: say hello\n")

        assert invoke(["trigger", "fire", "holding"]) == exits.OK
        while "begun it" not in log.read_text():
            os.sched_yield()
        capsys.readouterr()
    finally:
        code = invoke(["stop", "--all", "--timeout", "0"])  # what holds is interrupted
    assert (code, running_owner()) == (exits.OK, None)
    assert "what is at work is interrupted" in capsys.readouterr().err
    assert "Z ✓ asked        You said: say hello" in log.read_text()


def test_a_start_that_fails_in_the_background_says_why(project: Path, amplifier: Any) -> None:
    (project / "bundle.md").write_text("---\nbundle: {name: idle}\n---\n")
    done = amplifier("up", "--detach")
    assert (done.returncode, done.stdout) == (exits.USAGE, "")
    assert "declares no background_sessions" in done.stderr
    assert done.stderr.endswith("amplifier: it did not start, and ended with 4 (usage or validation)\n")


@pytest.mark.parametrize("other", ["--once", "--dry-run"])
def test_what_ends_by_itself_is_not_detached(other: str, background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["up", "--detach", other]) == exits.USAGE
    assert "--detach goes with neither" in capsys.readouterr().err


def test_quiet_says_nothing_of_what_happens(background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "hello"}']) == exits.OK
    capsys.readouterr()
    assert invoke(["up", "--once", "--quiet"]) == exits.OK
    assert capsys.readouterr() == ("", "")


def test_the_third_signal_waits_for_nothing() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from amplifier_foundation.cli.up import Stopper\n"
        "async def hang():\n"
        "    with Stopper():\n"
        "        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):\n"
        "            print(number.name, flush=True)\n"
        "            os.kill(os.getpid(), number)\n"
        "            await asyncio.sleep(0.01)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(hang())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (exits.TERMINATED, "SIGINT\nSIGINT\nSIGTERM\n", "")


async def test_a_signal_ends_a_start_that_is_not_over() -> None:
    with Stopper() as stopper:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        assert await stopper.unless_asked(asyncio.Event().wait()) is None
        assert (stopper.asked, stopper.code) == (True, exits.TERMINATED)
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0


async def test_a_hangup_has_the_bundles_looked_at() -> None:
    asked = asyncio.Event()
    with Stopper() as stopper:
        stopper.on_hangup(asked.set)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 30)
        assert not stopper.asked


async def test_what_runs_beside_ends_with_the_block_and_hides_no_error() -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    with pytest.raises(LookupError, match="its own"):
        async with beside(endless()):
            await asyncio.sleep(0)
            raise LookupError("its own")
    assert ended == ["endless"]


def test_a_file_that_is_long_enough_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    assert detaching.rotated(log)
    log.write_text("short")
    assert not detaching.rotated(log)
    with log.open("wb") as file:
        file.truncate(detaching.LARGEST + 1)
    assert detaching.rotated(log)
    assert [path.name for path in tmp_path.iterdir()] == ["up.log.1"]


def shown(view: RunView, out: io.StringIO) -> list[str]:
    """Return the rows of the table as it stands there now."""
    out.seek(0)
    out.truncate()
    view.tally([], {}) if view.changed else view._redraw()
    return [line.rstrip() for line in out.getvalue().split("\n") if line.strip()]


async def test_the_table_shows_each_background_session_and_how_it_fares(background: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=110, color_system=None, legacy_windows=False)
    bundle = await load_bundle(str(background))
    event = TriggerEvent(TriggerType.FILE_CHANGE, "t", file_path="a.py", change_type="modified")

    def tell(kind: Any, **facts: Any) -> None:
        view(Activity(kind, "asked", facts, "echo/asked", "/p"))

    with RunView(console) as view:
        view.expect(bundle, "/p")
        tell("state", status="running", reason="")
        tell("armed", trigger="trigger-file-watcher")
        tell("accepted", event=event)
        tell("dead", delivery=type("D", (), {"session_id": "s"}), reason="no\nmore")
        counts: Any = {"done": 1234, "pending": 2, "dead": 1}
        view.tally([Tally("/p", "echo/asked", "t", counts, event.timestamp)], {("/p", "echo/asked"): ["s-1", "s-2"]})
        rows = shown(view, out)
        heading = [line for line in rows if "last result" in line]
        assert heading[0].split() == [
            "session",
            "state",
            "triggers",
            "waiting",
            "at",
            "work",
            "done",
            "dead",
            "last",
            "result",
        ]
        [asked] = [line for line in rows if "asked" in line]
        assert asked.split()[:7] == ["asked", "running", "file-watcher", "2", "2", "1,234", "1"]
        assert asked.endswith("✗ given up: no")
        assert [line.split()[:2] for line in rows if "holding" in line] == [["holding", "starting"]]
        tell("state", status="failed", reason="a disk")
        assert any("failed: a disk" in line for line in shown(view, out))
        tell("state", status="stopped", reason="")
        assert not any("asked" in line for line in shown(view, out))


async def test_output_that_nobody_reads_any_more_ends_nothing() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = RunView(Console(file=Closed()))
    view.note("one")
    view.note("two")
    assert not view.is_live
