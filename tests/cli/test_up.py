"""`amplifier up` as a process: what it tells, what it obeys, and how it runs in the background."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.storage import DeliveryCounts
from amplifier_foundation import Activity, load_bundle
from amplifier_foundation.cli import detaching, exits, invoke, signals
from amplifier_foundation.cli.signals import Stopper
from amplifier_foundation.cli.view import RunView
from amplifier_foundation.cli.work_lines import WorkLines
from amplifier_foundation.sessions.lock import running_owner
from tests import forks

COUNTS = ["waiting", "at", "work", "done", "dead"]


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a service manager listens."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("notify")
        receiver.settimeout(120)
        yield receiver


def test_sigterm_lets_what_is_at_work_finish_and_the_service_manager_is_told(
    background: Path, notified: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(background.parent)
    told = {"NOTIFY_SOCKET": "../notify", "WATCHDOG_USEC": "40000"}
    assert invoke(["trigger", "fire", "holding"]) == exits.OK
    with forks.Popen(
        ["up"], env={**os.environ, **told}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun it\n"
        messages = [notified.recv(1000) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        while (message := notified.recv(1000)) == b"WATCHDOG=1":
            pass
        Path("go").touch()
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (exits.TERMINATED, "")
    assert sorted(messages) == [b"READY=1\nSTATUS=echo", b"WATCHDOG=1", b"WATCHDOG=1"]
    assert message == b"STOPPING=1"
    assert Path("ended-it").exists()
    assert re.search("✓ holding      [0-9a-f]{4} held", out)


def test_it_runs_in_the_background_until_it_is_told_to_stop(
    background: Path, home: Path, amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "logs" / "up.log"
    log.parent.mkdir(0o700, parents=True)
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

        with forks.Popen(["logs", "-f", "asked"], stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert invoke(["trigger", "fire", "asked", "--data", '{"what": "hello"}']) == exits.OK
            lines = []
            while not lines or " ✓ " not in lines[-1]:
                lines.append(following.stdout.readline())
            following.send_signal(signal.SIGINT)
            assert following.wait(30) == exits.INTERRUPTED
        told = [line.split()[1:3] for line in lines if " ◦ " not in line]  # without its status, which changes meanwhile
        told = [each for each in told if each != ["◆", "asked"]]  # who fired it: before it is handled, or meanwhile
        assert told == [["●", "asked"], ["▶", "asked"], ["✓", "asked"]]
        assert lines[-1].endswith("You said: say hello\n")

        assert invoke(["trigger", "fire", "holding"]) == exits.OK
        while "begun it" not in log.read_text():
            os.sched_yield()
        capsys.readouterr()
    finally:
        code = invoke(["stop", "--all", "--timeout", "0"])  # what holds is interrupted
    assert (code, running_owner()) == (exits.OK, None)
    assert "interrupting running sessions" in capsys.readouterr().err
    assert re.search(r"Z ✓ asked        [0-9a-f]{4} You said: say hello", log.read_text())


def test_a_start_that_fails_in_the_background_says_why(project: Path, amplifier: Any) -> None:
    (project / "bundle.md").write_text("---\nbundle: {name: idle}\n---\n")
    done = amplifier("up", "--detach")
    assert (done.returncode, done.stdout) == (exits.USAGE, "")
    assert "declares no background_sessions" in done.stderr
    assert done.stderr.endswith("amplifier: it did not start, and ended with 4 (usage or validation)\n")


def test_a_planted_link_in_place_of_the_log_is_named_with_its_remedy(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "logs" / "up.log"
    log.parent.mkdir(0o700, parents=True)
    log.symlink_to(home / "elsewhere")
    assert invoke(["up", "--detach", "--trust"]) == exits.USAGE
    assert f"{log}: no log is written through symbolic links; remove this one\n" in capsys.readouterr().err
    assert not (home / "elsewhere").exists()


@pytest.mark.parametrize("other", ["--once", "--dry-run"])
def test_what_ends_by_itself_is_not_detached(other: str, background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["up", "--detach", other]) == exits.USAGE
    assert "--detach excludes" in capsys.readouterr().err


def test_quiet_says_nothing_of_what_happens(background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "hello"}']) == exits.OK
    capsys.readouterr()
    assert invoke(["up", "--once", "--quiet"]) == exits.OK
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["up", "worker"])
def test_sessions_are_interrupted_before_a_container_is_killed(
    command: str, background: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert signals.GRACE <= 8, "docker stop kills after 10 seconds"
    assert invoke([command, "--help"]) == exits.OK
    assert f"gives running sessions {signals.GRACE:g} seconds" in " ".join(capsys.readouterr().out.split())


def test_the_third_signal_waits_for_nothing() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from amplifier_foundation.cli.signals import Stopper\n"
        "async def hang():\n"
        "    with Stopper():\n"
        "        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):\n"
        "            print(number.name, flush=True)\n"
        "            os.kill(os.getpid(), number)\n"
        "            await asyncio.sleep(0.01)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(hang())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (exits.INTERRUPTED, "SIGINT\nSIGTERM\nSIGINT\n", "")


BLOCKED = """
import _thread, asyncio, os, signal, time
from amplifier_foundation.cli import signals
signals.GRACE, signals.TOGETHER = {grace}, 0
def refuse(*args):
    raise RuntimeError("can't start new thread")
async def hang():
    with signals.Stopper():
        for number in {numbers}:
            os.kill(os.getpid(), number)
        {then}
        print("heard", flush=True)
        os._exit(0)
asyncio.run(hang())
"""


@pytest.mark.parametrize(
    ("numbers", "grace", "code"),
    [((2, 2, 2), 600, exits.INTERRUPTED), ((15, 2, 15), 600, exits.TERMINATED), ((15,), 0.05, exits.TERMINATED)],
)
def test_a_process_whose_loop_is_blocked_ends_at_the_third_signal_or_after_its_grace(
    numbers: tuple[int, ...], grace: float, code: int
) -> None:
    script = BLOCKED.format(grace=grace, numbers=numbers, then="time.sleep(600)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == (
        "amplifier: ended while something blocks it; accepted events are stored, and the next start goes on\n"
    )


def test_signals_are_heard_where_no_thread_can_be_started() -> None:
    then = "_thread.start_new_thread = refuse; os.kill(os.getpid(), 15); await asyncio.sleep(0)"
    script = BLOCKED.format(grace=600, numbers=(), then=then)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_a_signal_of_the_last_moment_does_not_cut_the_end_off() -> None:
    code = """
import asyncio, os
from amplifier_foundation.cli import signals
signals.GRACE = 0.01
async def end():
    with signals.Stopper():
        os.kill(os.getpid(), 15)
    await asyncio.sleep(0.1)
    print("ended")
asyncio.run(end())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_a_loop_that_hears_a_signal_has_all_the_time_to_stop() -> None:
    script = BLOCKED.format(grace=0.01, numbers=(15,), then="await asyncio.sleep(0.1)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


QUIET_HOURS = """
from datetime import datetime
from pathlib import Path
from amplifier_core.errors import SpawnRefused
from amplifier_core.hookspecs import hookimpl

@hookimpl
async def amplifier_before_spawn(request):
    if Path("night").exists():
        morning = datetime.fromisoformat("2999-01-01T07:00Z")
        raise SpawnRefused(str(request.parent_id), "quiet hours", not_before=morning)
"""


def test_once_ends_with_1_while_a_plugin_has_an_event_wait(
    background: Path, tmp_path: Path, amplifier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin" / "quiet-1.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Name: quiet\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text("[amplifier]\nquiet = quiet_hours\n")
    (plugin.parent / "quiet_hours.py").write_text(QUIET_HOURS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(plugin.parent), os.environ.get("PYTHONPATH")])))
    said = "for the next start. See: amplifier ps\n"
    (night := background.parent / "night").touch()
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "a"}']) == exits.OK
    done = amplifier("up", "--once")
    assert (done.returncode, done.stderr) == (
        exits.FAILED,
        f"amplifier: 1 event waits until 2999-01-01T07:00:00Z, {said}",
    )
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "b"}']) == exits.OK
    done = amplifier("-q", "up", "--once")
    waiting = "amplifier: 2 events wait, the first one until 2999-01-01T07:00:00Z"
    assert (done.returncode, done.stderr) == (exits.FAILED, f"{waiting}, {said}")
    night.unlink()
    done = amplifier("up", "--once")
    assert (done.returncode, done.stderr) == (exits.OK, "")


def test_once_ends_with_1_while_an_event_waits_for_an_answer(
    background: Path, amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = background.read_text(encoding="utf-8")
    background.write_text(
        text.replace("background_sessions:", "permissions: {mode: ask}\nbackground_sessions:"), "utf-8"
    )
    (background.parent / "go").touch()
    assert invoke(["trigger", "fire", "holding"]) == exits.OK
    assert invoke(["trust", "--yes"]) == exits.OK
    said = "amplifier: 1 event waits for your answer. See: amplifier approvals list\n"
    for _ in range(2):
        done = amplifier("-q", "up", "--once")
        assert (done.returncode, done.stderr) == (exits.FAILED, said)
    assert invoke(["approvals", "approve", "last"]) == exits.OK
    done = amplifier("-q", "up", "--once")
    assert (done.returncode, done.stderr) == (exits.OK, "begun it\n")


async def test_a_signal_ends_a_start_that_is_not_over() -> None:
    with Stopper() as stopper:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        assert await stopper.unless_asked(asyncio.Event().wait()) is None
        assert (stopper.is_asked, stopper.code) == (True, exits.TERMINATED)
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0


async def test_a_signal_that_comes_twice_at_once_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stopper() as stopper:
        monkeypatch.setattr(signals, "TOGETHER", 3600)
        for _ in range(2):  # as from a process group, and from the first process of a container
            os.kill(os.getpid(), signal.SIGTERM)
            await stopper.wait()
            for _ in range(10):
                await asyncio.sleep(0)  # the loop hears of it
        assert not stopper._again.is_set()
        monkeypatch.setattr(signals, "TOGETHER", 0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stopper._again.wait(), 30)


async def test_a_key_that_is_held_down_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ended = [0.0], list[int]()
    monkeypatch.setattr(signals, "_end_blocked", ended.append)
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with Stopper() as stopper:
        for _ in range(30):
            now[0] += signals.TOGETHER / 2
            stopper._count(exits.INTERRUPTED, signal.SIGINT, None)
    assert ended


async def test_a_hangup_has_the_bundles_looked_at() -> None:
    asked = asyncio.Event()
    with Stopper() as stopper:
        stopper.on_hangup(asked.set)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 30)
        assert not stopper.is_asked


def test_a_file_that_is_long_enough_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    detaching.rotate_log(log)
    log.write_text("short")
    detaching.rotate_log(log)
    assert [path.name for path in tmp_path.iterdir()] == ["up.log"]
    with log.open("wb") as file:
        file.truncate(detaching.LARGEST + 1)
    detaching.rotate_log(log)
    assert [path.name for path in tmp_path.iterdir()] == ["up.log.1"]


def test_a_planted_link_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    (tmp_path / "up.log").symlink_to(tmp_path / "precious")
    with pytest.raises(click.UsageError, match="symbolic links"):
        detaching.Logfile(tmp_path / "up.log")
    assert ((tmp_path / "precious").read_text(), (tmp_path / "precious").stat().st_mode & 0o777) == ("text", 0o644)


WRITER = """
import os, resource, sys
from pathlib import Path
from amplifier_foundation.cli import detaching
detaching.LARGEST = 1000
most = resource.getrlimit(resource.RLIMIT_NOFILE)
done, log = os.dup(1), detaching.Logfile(Path(sys.argv[1]))
for line in sys.stdin:
    match line.strip():
        case "rotate":
            log.rotate()
        case "exhaust":
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))
        case "recover":
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        case text:
            print(text, flush=True)
    os.write(done, b"done\\n")
"""


class Writer:
    """A process with a log file of at most 1000 bytes, which does one thing at a time."""

    def __init__(self, log: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(log)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, *lines: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in lines:
            print(line, file=self._process.stdin, flush=True)
            assert self._process.stdout.readline() == "done\n"

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=120)
        assert self._process.returncode == 0


def test_processes_that_share_a_log_all_write_to_the_new_file_after_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with Writer(log) as one, Writer(log) as two:
        one.do("1" * 1001, "rotate")
        two.do("rotate", "two after one")
        assert log.read_text() == "two after one\n"
        two.do("2" * 1001, "rotate", "rotate")
        one.do("rotate", "one after two", "rotate")
        two.do("both")
    assert log.read_text() == "one after two\nboth\n"
    assert (tmp_path / "up.log.1").read_text() == f"two after one\n{'2' * 1001}\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_that_cannot_be_rotated_is_a_warning_and_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "up.log"
    with Writer(log) as writer:
        writer.do("1" * 1001, "exhaust", "rotate", "rotate", "still here", "recover")
        warning = f"the log {log} cannot be rotated, which is tried again: "
        assert log.read_text() == f"{'1' * 1001}\n{warning}Too many open files\nstill here\n"
        writer.do("rotate", "a new one")
        assert log.read_text() == "a new one\n"
        moved = log.parent.rename(tmp_path / "moved") / "up.log"
        log.parent.touch()
        writer.do("rotate", "rotate")
        assert moved.read_text() == f"a new one\n{warning}Not a directory\n"
        log.parent.unlink()
        writer.do("rotate", "back")
        assert log.read_text() == "back\n"


def shown(view: RunView, out: io.StringIO) -> list[str]:
    """Return the rows of the table as it stands there now."""
    out.seek(0)
    out.truncate()
    view.show_counts([], {}) if view.changed else view._redraw()
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
        tell("armed", trigger="b/files/trigger-file-watcher#1", module="trigger-file-watcher")
        tell("accepted", event=event)
        tell("dead", delivery=type("D", (), {"session_id": "s", "delivery_id": "d"}), reason="no\nmore")
        counts: Any = {"done": 1234, "pending": 2, "dead": 1}
        view.show_counts(
            [DeliveryCounts("/p", "echo/asked", "t", counts, event.timestamp)], {("/p", "echo/asked"): ["s-1", "s-2"]}
        )
        rows = shown(view, out)
        heading = [line for line in rows if "last result" in line]
        assert heading[0].split() == [
            "background",
            "session",
            "state",
            "triggers",
            "waiting",
            "at",
            "work",
            "done",
            "dropped",
            "dead",
            "last",
            "result",
        ]
        [asked] = [line for line in rows if "asked" in line]
        assert asked.split()[:7] == ["asked", "running", "file-watcher", "2", "2", "1,234", "0"]
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


def test_keys_pause_explain_and_quit(background: Path, terminals: Any, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = terminals("up", term="xterm-256color")
    terminal.type("quit\n")  # for the shell
    terminal.until("Enter details")
    terminal.type("p")
    terminal.until("Paused, also over a restart")
    assert invoke(["ps", "--json"]) == exits.OK
    assert {row["state"] for row in json.loads(capsys.readouterr().out)["data"]["background_sessions"]} == {"paused"}
    terminal.type("p")
    terminal.until("Resumed")
    terminal.type("\x1b[Ax\x1bOp\n")
    terminal.until("nothing happened yet")
    terminal.type("l")
    terminal.until("Tool calls are hidden")
    terminal.continue_after_shell()
    terminal.type("l")
    terminal.until("Tool calls are shown")
    terminal.type("q")
    terminal.until("Stopping")
    assert terminal.ended() == exits.OK


def test_what_works_for_long_has_a_line_with_its_time_and_its_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    work = WorkLines()
    for at, session_id in enumerate(("coder-abcdef123456", "coder-0123456789ab", "tester-fedcba654321")):
        clock[0] = 100.0 + at
        work.begin(session_id, session_id.partition("-")[0])
    work.note("coder-0123456789ab", "→ bash command=make test")
    work.note("gone-000000000000", "→ nothing")
    clock[0] = 106.5
    assert [line.plain for line in work.lines(80)] == [
        "▶ coder abcd 0:06 ",
        "▶ coder 0123 0:05 → bash command=make test",
    ]
    assert [line.plain for line in work.lines(20)][1] == "▶ coder 0123 0:05 →…"
    work.end("coder-abcdef123456")
    clock[0] = 190.0
    assert [line.plain for line in work.lines(80)] == [
        "▶ coder 0123 1:29 → bash command=make test",
        "▶ tester fedc 1:28 ",
    ]


@pytest.mark.parametrize("option", ["--dry-run", "--once"])
def test_a_secret_that_is_not_set_is_told_before_anything_starts_with_its_place(
    option: str, project: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECRET_OF_HOOKS", raising=False)
    text = "{name: b, triggers: [{type: webhook, config: {path: /b, port: 8099, secret_env: SECRET_OF_HOOKS}}]}"
    front = f"bundle: {{name: a}}\nproviders: [{{module: provider-playbook}}]\nbackground_sessions: [{text}]\n"
    (project / "bundle.md").write_text(f"---\n{front}---\n")
    assert invoke(["bundle", "validate"]) == exits.OK  # a bundle is checked on machines without its secrets
    assert invoke(["up", option]) == exits.USAGE
    err = capsys.readouterr().err
    assert "bundle.md:4:91: error[AMP112] background_sessions[0].triggers[0].config.secret_env: " in err
    assert "the environment variable SECRET_OF_HOOKS is not set; put the secret there" in err
    monkeypatch.setenv("SECRET_OF_HOOKS", "of-the-test")
    assert invoke(["up", "--dry-run"]) == exits.OK
