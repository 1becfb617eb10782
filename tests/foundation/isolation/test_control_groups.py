"""Limits of all processes of a session together: real control groups, and nothing left of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import LimitReached
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.control_groups import PREFIX, Group, find_delegated, find_places, try_groups
from amplifier_foundation.isolation.limits import ProcessLimits
from amplifier_foundation.isolation.process_table import find_below, parents_of_all
from amplifier_foundation.isolation.runner import SubprocessRunner

from .conftest import EVERY_WAY, KILLS, PROGRAM, living, until_it_exists

if TYPE_CHECKING:
    from collections.abc import Callable

    Plan = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow

grouped = pytest.mark.skipif(not find_places(), reason="this system delegates no control groups")

HOLD = "import time; held = bytearray(b'x') * 60_000_000; time.sleep(600)"
BURN = "while True: pass"


@grouped
@EVERY_WAY
@pytest.mark.parametrize(
    ("limits", "code", "told"),
    [
        ({"memory": "100 MiB"}, HOLD, "memory: 100 MiB for all its processes"),
        ({"cpu_seconds": 2}, BURN, "cpu_seconds: 2 for all its processes"),
    ],
)
async def test_a_limit_holds_for_all_processes_together_though_none_reaches_it(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path, limits: dict[str, Any], code: str, told: str
) -> None:
    started = f"subprocess.Popen([sys.executable, '-c', {code!r}])"
    config = plan(f"import subprocess, sys\nfor each in [{started} for _ in range(4)]: each.wait()", limits=limits)
    with pytest.raises(LimitReached, match=told):
        await run_session_in_subprocess(config, "Go", "p", tmp_path, runner=runner, timeout=60)
    while left_of(runner.pids()):
        await asyncio.sleep(0.01)


@grouped
async def test_a_session_within_its_limits_leaves_no_group(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    limits = {"memory": "200 MiB", "cpu_seconds": 60, "processes": 20}
    code = "return open('/proc/self/cgroup').read().count('amplifier-')"
    result = await run_session_in_subprocess(plan(code, limits=limits), "Go", "p", tmp_path, runner=runner)
    assert int(result.output.rpartition(" ")[2]) == len(set(find_places().values()))
    while left_of(runner.pids()):
        await asyncio.sleep(0.01)


async def test_a_session_that_asks_for_no_such_limit_has_no_group(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = "return open('/proc/self/cgroup').read().count('amplifier-')"
    result = await run_session_in_subprocess(plan(code, limits={"open_files": 500}), "Go", "p", tmp_path, runner=runner)
    assert result.output == "It says: 0"


@grouped
async def test_a_fork_bomb_gets_no_further_than_the_system_lets_it(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = (
        "import os, time\n"
        "for number in range(2000):\n"
        "    try:\n        pid = os.fork()\n    except OSError:\n        break\n"
        "    if not pid:\n        time.sleep(600)\n"
        "    os.close(os.open(f'forked-{number}', os.O_CREAT))\n"
        "time.sleep(600)"
    )
    with pytest.raises(LimitReached, match="processes: 20"):
        await run_session_in_subprocess(
            plan(code, limits={"processes": 20}), "Go", "p", tmp_path, runner=runner, timeout=60
        )
    assert len(list(tmp_path.glob("forked-*"))) <= 2 * 20 + 64


@grouped
async def test_killed_at_random_no_group_is_left(plan: Plan, tmp_path: Path) -> None:
    chance, zygotes = random.Random(7), set()
    limits = {"memory": "200 MiB", "cpu_seconds": 60, "processes": 20}
    code = "import os, time\nopen('began', 'w').write(str(os.getpid())); os.rename('began', 'begun')\ntime.sleep(600)"
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(plan(code, limits=limits)), str(folder), "fork"],
            stderr=subprocess.DEVNULL,
        ) as parent:
            await until_it_exists(folder / "begun")
            session = int((folder / "begun").read_text())
            zygote = parents_of_all()[session]
            zygotes.add(zygote)
            below = {parent.pid, *find_below([parent.pid])}
            os.kill(chance.choice([session, zygote, parent.pid]), signal.SIGKILL)
        while below & living():
            await asyncio.sleep(0.01)
    runner = SubprocessRunner()
    await run_session_in_subprocess(plan(limits=limits), "Go", "p", tmp_path, runner=runner)
    zygotes.update(runner.pids())
    runner.close()
    assert left_of(zygotes) == []


def left_of(zygotes: Any) -> list[Path]:
    """Return the groups that sessions of some zygotes have."""
    places = set(find_places().values())
    return [folder for place in places for pid in zygotes for folder in place.glob(f"{PREFIX}{pid}-*")]


@grouped
def test_a_group_is_tried() -> None:
    assert try_groups()


@pytest.fixture
def unified(tmp_path: Path) -> Any:
    """A mounted hierarchy of version 2, without controllers."""
    folder = tmp_path / "unified"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "cgroup2", "none", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("control groups of version 2 cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_the_group_of_version_2_counts_its_seconds_is_killed_at_once_and_removed(unified: Path) -> None:
    places = dict.fromkeys(("memory", "processes", "cpu_seconds"), unified)
    with subprocess.Popen([sys.executable, "-c", BURN]) as burning:
        group = Group(os.getpid(), burning.pid, places)
        assert group.join(ProcessLimits(cpu_seconds=1), burning.pid) == {"cpu_seconds"}
        assert not group.remove()
        assert group.find_reached(0) == ""
        while not group.find_reached(1):
            pass
        assert group.find_reached(1) == "cpu_seconds"
        group.kill()
        assert burning.wait() == -signal.SIGKILL
    assert group.remove()
    assert not (unified / f"{PREFIX}{os.getpid()}-{burning.pid}").exists()


def test_a_group_that_the_system_refuses_holds_nothing(unified: Path) -> None:
    group = Group(os.getpid(), 1, dict.fromkeys(("memory", "processes", "cpu_seconds"), unified))
    assert group.join(ProcessLimits(memory=2**30, processes=5), os.getpid()) == set()
    assert group.remove()


def test_groups_of_version_2_are_made_where_controllers_are_delegated(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "amplifier.service"
    own.mkdir(parents=True)
    for folder, controllers in ((own, ""), (own.parent, "cpu memory pids")):
        (folder / "cgroup.subtree_control").write_text(controllers)
        (folder / "cgroup.procs").touch()
    assert find_delegated(own) == own.parent
    inner = own.parent / f"{PREFIX}1-2"
    inner.mkdir()
    assert find_delegated(inner) is None
    (own.parent / "cgroup.subtree_control").write_text("cpu")
    assert find_delegated(own) is None
    (own / "cgroup.subtree_control").write_text("memory pids")
    assert find_delegated(own) == own
