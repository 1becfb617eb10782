"""Where sessions of the runner go: its settings, a cluster that is not there, and what a host does by itself."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import __version__, load_plugins
from amplifier_core.errors import SessionProcessEnded
from amplifier_core.hook_data import SpawnRequest
from amplifier_foundation.isolation.jobs import Job
from amplifier_foundation.isolation.limits import ProcessLimits
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_runner_ray import check_ray, host
from amplifier_runner_ray.bridge import disconnect
from amplifier_runner_ray.cluster import RayCluster, RayConfig, read_config
from amplifier_runner_ray.host import WATCH, Host
from amplifier_runner_ray.leftovers import own_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_runner_ray.pieces import Piece

PLAN = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "providers": []}


def write_settings(folder: Path, config: Any) -> None:
    folder.mkdir(exist_ok=True)
    text = json.dumps({"overrides": {"runner-ray": {"config": config}}})
    (folder / "settings.yaml").write_text(text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a user without a cluster."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("amplifier_runner_ray.cluster.RUNNING", tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_the_users_own_settings_say_where_sessions_run_and_no_project(home: Path) -> None:
    write_settings(home, {"cpus": 2, "environment": ["PROXY"]})
    write_settings(home.parent / ".amplifier", {"address": "elsewhere:6379", "environment": ["SECRET"]})
    config = read_config()
    assert (config.address, config.cpus, config.environment) == ("", 2, ["PROXY"])


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"cpu": 2},
            r"overrides\.runner-ray\.config\.cpu: unknown key; did you mean 'cpus'\?",
        ),
        ({"adress": "x"}, r"overrides\.runner-ray\.config\.adress: unknown key; did you mean 'address'\?"),
        ({"x": 2}, r"overrides\.runner-ray\.config\.x: unknown key; known are address, cpus, environment, resources"),
        ({"sessions": 0}, r"overrides\.runner-ray\.config\.sessions: .*greater than or equal to 1"),
    ],
)
def test_a_mistake_is_named_with_its_key(home: Path, config: dict[str, Any], problem: str) -> None:
    write_settings(home, config)
    with pytest.raises(ValueError, match=problem):
        read_config()


def test_all_runners_of_a_program_share_one_connection(home: Path) -> None:
    make = load_plugins().runners.get("runner-ray")
    assert make() is make()


def test_a_session_gets_the_keys_of_its_providers_and_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "PROXY"):
        monkeypatch.setenv(name, name.lower())
    plan = {**PLAN, "providers": [{"module": "provider-anthropic"}]}
    job = Job(SpawnRequest("s", "p", "b", "i", plan, ""))
    given = RayCluster(RayConfig(environment=["PROXY", "NOT_SET"])).describe_process(job, ())
    own = {"ANTHROPIC_API_KEY": "anthropic_api_key", "PROXY": "proxy"}
    assert given == {"path": None, "environ": own}


async def test_without_a_cluster_a_session_says_how_to_start_one(home: Path) -> None:
    cluster = RayCluster()
    request = SpawnRequest("s", "p", "b", "i", PLAN, "")
    try:
        with pytest.raises(SessionProcessEnded, match="no Ray cluster is known; start one with 'ray start --head'"):
            await SubprocessRunner(cluster).run(request, lambda request: None)  # type: ignore[arg-type,return-value]
    finally:
        cluster.close()


def test_doctor_says_that_there_is_no_cluster(home: Path) -> None:
    [found] = check_ray()
    assert (found["part"], found["state"]) == ("ray", "off")


async def begin(at: Host) -> None:
    await at.begin(__version__, [])


async def end(at: Host) -> None:
    """Kill the session of a host, and wait until its sockets are closed."""
    await at.write(99, [(WATCH, b"K")])
    assert at._guarding is not None
    await at._guarding
    for _ in range(3):  # the loop closes sockets in its next turns
        await asyncio.sleep(0)


async def read_until(at: Host, told: bytes, number: int = 0) -> tuple[int, bytes]:
    """Read from the watch socket until it says this; return the number of the last pieces, and what it said."""
    said = b""
    while told not in said:
        number += 1
        said += b"".join(data for each, data in await at.read(number) if each == WATCH)
    return number, said


async def test_what_a_call_asked_for_comes_once_when_the_call_is_repeated() -> None:
    place = Host()
    await begin(place)
    number, said = await read_until(place, b"pid")
    assert await place.read(number) == await place.read(number)
    setting = {"path": None, "environ": {}, "folder": "", "limits": asdict(ProcessLimits())}
    pieces: Sequence[Piece] = [(0, _message(json.dumps(setting).encode()))]
    for _ in range(2):
        await place.write(1, list(pieces))
    await place.write(2, [(WATCH, b"K")])
    _, said = await read_until(place, b"ended", number)
    assert json.loads(said.splitlines()[-1])["ended"] == 9
    await end(place)


def _message(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


async def test_a_host_that_nobody_reads_from_kills_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CUT", 0.0)
    place = Host()
    await begin(place)
    _, said = await read_until(place, b"pid")
    pid = json.loads(said)["pid"]
    while Path("/proc", str(pid)).exists():
        await asyncio.sleep(0.01)
    monkeypatch.setattr(host, "CUT", 60.0)
    await begin(place)  # it serves the next one
    await end(place)


async def test_a_host_with_another_version_refuses() -> None:
    with pytest.raises(ValueError, match="has amplifier .*, and not 0.0.1: install the same one"):
        await Host().begin("0.0.1", [])


WRITES = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
while True:
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
"""


def test_a_daemon_that_writes_until_it_dies_leaves_no_folder() -> None:
    logs = own_folder() / "logs"
    with subprocess.Popen([sys.executable, "-c", WRITES, str(logs)], stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            disconnect()
            assert not own_folder().exists()
            assert daemon.wait() == -signal.SIGKILL
        finally:
            daemon.kill()
