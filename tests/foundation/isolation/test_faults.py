"""What a session in a process of its own may do to itself, and what is told of it; nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import LimitReached, SessionProcessEnded
from amplifier_core.testing import MemoryStore
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.process_table import find_below
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_foundation.isolation.zygotes import Zygotes

from .conftest import EVERY_WAY, KILLS, PROGRAM, living, until_it_exists

if TYPE_CHECKING:
    from collections.abc import Callable

    Plan = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow

RESTLESS = """
import sys, threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

threading.Thread(target=threading.Event().wait, daemon=True).start()
real = PathFinder.find_spec(__name__, sys.path[1:])
sys.modules[__name__] = module_from_spec(real)
real.loader.exec_module(sys.modules[__name__])
"""
SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(600)']"


@EVERY_WAY
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os._exit(7)", "ended by itself with exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by the signal SIGSEGV"),
        ("import os; os.abort()", "was ended by the signal SIGABRT"),
        ("import os; os.closerange(3, 1000); await __import__('asyncio').sleep(600)", "the process of session"),
    ],
)
async def test_a_process_that_ends_early_is_an_error_that_says_how(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, code: str, told: str
) -> None:
    with pytest.raises(SessionProcessEnded, match=told):
        await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner, timeout=60)


@EVERY_WAY
@pytest.mark.parametrize(
    ("limits", "code", "told"),
    [
        ({"memory": "512 MiB"}, "return len(bytearray(10_000_000_000))", "memory: 512 MiB"),
        ({"cpu_seconds": 1}, "while True: pass", "cpu_seconds: 1"),
        ({"output": "1 MiB"}, "import os\nwhile True: os.write(1, b'x' * 65536)", "output: 1 MiB"),
    ],
)
async def test_a_limit_that_is_reached_is_an_error_that_names_it(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, limits: dict[str, Any], code: str, told: str
) -> None:
    with pytest.raises(LimitReached, match=told) as caught:
        await run_session_in_subprocess(plan(code, limits=limits), "Go", "p", tmp_path, runner=runner, timeout=60)
    assert "limits" in str(caught.value)


@pytest.mark.parametrize("runner", ["fork", "fresh"], indirect=True)
async def test_the_limit_of_processes_counts_those_below_the_session(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = "import os, time\nfor _ in range(60):\n    if not os.fork():\n        time.sleep(600)\ntime.sleep(600)"
    with pytest.raises(LimitReached, match="processes: 20"):
        await run_session_in_subprocess(
            plan(code, limits={"processes": 20}), "Go", "p", tmp_path, runner=runner, timeout=60
        )


@pytest.mark.parametrize(
    ("limits", "code", "told"),
    [
        ({"open_files": 64}, "files = [open('/dev/null') for _ in range(100)]", "Too many open files"),
        ({"file_size": "1 MiB"}, "open('large', 'wb').write(b'x' * 2_000_000)", "File too large"),
    ],
)
async def test_a_limit_of_files_is_an_error_of_the_tool(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, limits: dict[str, Any], code: str, told: str
) -> None:
    code = f"try:\n    {code}\nexcept OSError as error:\n    return error.strerror"
    result = await run_session_in_subprocess(plan(code, limits=limits), "Go", "p", tmp_path, runner=runner)
    assert result.output == f"It says: {told}"


@pytest.mark.parametrize(
    "limits", [{"memory": 0}, {"memory": "lots"}, {"cpu_seconds": -1}, {"colour": 1}, {"processes": True}]
)
async def test_an_impossible_limit_is_refused_before_anything_runs(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, limits: dict[str, Any]
) -> None:
    result = await run_session_in_subprocess(plan(limits=limits), "Go", "p", tmp_path, runner=runner)
    assert result.status == "error"
    assert "session.limits" in str(result.error)


async def test_a_fork_bomb_is_killed_with_all_that_it_started(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    before = living()
    code = "import os\nfor _ in range(400):\n    os.fork()\n    __import__('time').sleep(0.002)"
    with pytest.raises((LimitReached, SessionProcessEnded)):
        await run_session_in_subprocess(
            plan(code, limits={"processes": 30}), "Go", "p", tmp_path, runner=runner, timeout=60
        )
    runner._zygotes.prepare()
    assert {pid for pid in living() - before if pid in find_below(runner.pids())} <= set(find_below(runner.pids()))


async def test_a_gigabyte_of_output_leaves_the_parent_small(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = "import os\nfor _ in range(1000): os.write(1, b'x' * 1_000_000)\nreturn 'printed'"
    before = resident()
    result = await run_session_in_subprocess(
        plan(code, limits={"output": "2 GB"}), "Go", "p", tmp_path, runner=runner, timeout=120
    )
    assert result.output == "It says: printed"
    assert resident() - before < 20_000_000


@pytest.mark.parametrize("runner", ["fork", "fresh"], indirect=True)
@pytest.mark.parametrize("started", ["Popen(SLEEPER)", "Popen(SLEEPER, start_new_session=True)"])
async def test_what_a_session_leaves_running_ends_with_it(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, started: str
) -> None:
    code = f"import subprocess, sys\nreturn subprocess.{started.replace('SLEEPER', SLEEPER)}.pid"
    result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner)
    assert int(result.output.rpartition(" ")[2]) not in living()


@pytest.mark.parametrize("runner", ["bare"], indirect=True)
async def test_without_proc_the_process_group_of_a_session_is_killed_at_its_end(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = f"import subprocess, sys\nreturn subprocess.Popen({SLEEPER}).pid"
    result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner)
    while int(result.output.rpartition(" ")[2]) in living():
        await asyncio.sleep(0.01)


@EVERY_WAY
async def test_a_session_that_ignores_sigterm_is_cancelled_all_the_same(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('began', 'w').write(str(os.getpid())); os.rename('began', 'begun')\nwhile True: time.sleep(1)"
    )
    running = asyncio.ensure_future(run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner))
    await until_it_exists(tmp_path / "begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert int((tmp_path / "begun").read_text()) not in living()


@pytest.mark.parametrize("way", ["fork", "fresh", "bare"])
async def test_sessions_end_with_the_process_that_wants_them(plan: Plan, tmp_path: Path, way: str) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({SLEEPER}, start_new_session={way != 'bare'})\n"
        "open('began', 'w').write(f'{os.getpid()} {child.pid}'); os.rename('began', 'begun')\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(plan(code)), str(tmp_path), way])
    await until_it_exists(tmp_path / "begun")
    below = {*find_below([parent.pid]), *map(int, (tmp_path / "begun").read_text().split())}
    assert len(below) >= 3
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while below & living():
        await asyncio.sleep(0.01)


@EVERY_WAY
async def test_a_session_does_not_outlive_its_zygote(runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
    code = "import os, time\nopen('began', 'w').write(str(os.getpid())); os.rename('began', 'begun')\ntime.sleep(600)"
    running = asyncio.ensure_future(run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner))
    await until_it_exists(tmp_path / "begun")
    [pid] = runner.pids()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SessionProcessEnded, match="was lost"):
        await running
    while int((tmp_path / "begun").read_text()) in living():
        await asyncio.sleep(0.01)


async def test_a_zygote_that_has_threads_starts_a_fresh_interpreter_for_each_session(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typing_extensions.py").write_text(RESTLESS)  # in place of the one that pydantic imports
    monkeypatch.syspath_prepend(tmp_path)
    zygotes = Zygotes()
    assert zygotes.try_start() == "an installed package starts 1 thread with Python"
    runner = SubprocessRunner(zygotes)
    result = await run_session_in_subprocess(plan(), "Go", "p", tmp_path, runner=runner)
    assert result.output == "It says: done"
    runner.close()


async def test_a_killed_zygote_is_replaced(plan: Plan, tmp_path: Path) -> None:
    runner = SubprocessRunner()
    for _ in range(2):
        result = await run_session_in_subprocess(plan(), "Go", "p", tmp_path, runner=runner)
        assert result.output == "It says: done"
        [pid] = runner.pids()
        os.kill(pid, signal.SIGKILL)
        while runner.pids():
            await asyncio.sleep(0.01)
    runner.close()


async def kill_the_only_one(victims: Callable[[], list[int]]) -> int:
    """Kill the process that waits, once the last session's process is gone; return its id."""
    while True:
        if len(pids := victims()) == 1:
            with suppress(ProcessLookupError):  # the last session's process has just ended
                os.kill(pids[0], signal.SIGKILL)
                return pids[0]
        await asyncio.sleep(0.01)


async def test_a_process_that_is_killed_while_it_waits_for_a_session_is_replaced(plan: Plan, tmp_path: Path) -> None:
    runner = SubprocessRunner()
    for victims in (lambda: find_below(runner.pids()), runner.pids, lambda: find_below(runner.pids())):
        for _ in range(3):  # what it imports is known now, and a process waits
            await run_session_in_subprocess(plan(), "Go", "p", tmp_path, runner=runner)
        pid = await kill_the_only_one(victims)
        while pid in living():
            await asyncio.sleep(0.01)
        result = await run_session_in_subprocess(plan(), "Go", "p", tmp_path, runner=runner)
        assert (result.error, result.output) == (None, "It says: done")
    runner.close()


async def test_a_session_whose_zygote_is_killed_is_lost_and_says_so(plan: Plan, tmp_path: Path) -> None:
    runner = SubprocessRunner()
    code = "import asyncio\nopen('begun', 'w').close()\nawait asyncio.sleep(600)"
    running = asyncio.ensure_future(run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner))
    await until_it_exists(tmp_path / "begun")
    [pid] = runner.pids()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SessionProcessEnded, match="was lost"):
        await running
    runner.close()


async def test_a_module_that_starts_threads_is_imported_by_each_child(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = SubprocessRunner()
    (tmp_path / "restless_module.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runner._zygotes.learn(["restless_module"], ["restless_module"])
    code = "import threading, restless_module\nreturn threading.active_count() > 1"
    result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner)
    assert result.output == "It says: True"
    runner.close()


async def test_killed_at_random_nothing_acknowledged_is_lost(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    store, chance = MemoryStore(), random.Random(7)
    code = (
        "import os, signal, threading\n"
        "threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "context = coordinator.get('context')\n"
        "for number in range(50): await context.add_message({'role': 'user', 'content': str(number)})\n"
        "return 'written'"
    )
    ended = 0
    for number in range(KILLS):
        session_id = f"s{number}"
        config = plan(code.replace("{delay}", f"{chance.random() * 0.02:.5f}"))
        try:
            result = await run_session_in_subprocess(
                config, "Go", "p", tmp_path, session_id, store=store, runner=runner
            )
            assert result.output == "It says: written"
        except SessionProcessEnded:
            ended += 1
        messages = await store.read(session_id)
        record = await store.get(session_id)
        assert record.message_count == len(messages) >= 2
        assert record.status in ("completed", "failed")
        faults = {finding.kind for finding in await store.examine(session_id)} - {"missing_parent"}
        assert not faults or record.status == "failed"
    assert ended > 0


def resident() -> int:
    """Return the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
