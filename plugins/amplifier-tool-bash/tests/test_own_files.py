"""Commands neither change the Python that runs the program, nor see its data folder in the working folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_sandbox.landlock import find_version
from tests.programs import make_environment, require

RUN = """
import asyncio, json, sys
from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_tool_bash import mount

async def run(command, section):
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", ".")
    policy = Policy([parse_permissions(json.loads(section), "user settings", is_own=True)])
    coordinator.guard(PermissionGate(policy, "."))
    await mount(coordinator, {"sandbox": "bubblewrap"})
    result = await coordinator.get("tools", "bash").execute({"command": command})
    await coordinator.cleanup()
    print(json.dumps(result.output))

asyncio.run(run(*sys.argv[1:]))
"""
CHANGES = (
    "echo x >own/.venv/bin/new; echo x >own/.venv/lib/new; echo x >>own/.venv/pyvenv.cfg; "
    "rm -rf own/.venv; mv own old; echo made >made; cat own/.venv/pyvenv.cfg"
)


def run(python: str, work: Path, command: str, **section: list[str]) -> Any:
    """Return the result of a command in bubblewrap, called by a program of this Python."""
    done = subprocess.run(
        [python, "-c", RUN, command, json.dumps(section)], cwd=work, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_a_command_reads_the_python_of_the_program_and_does_not_change_it(work: Path) -> None:
    require("bwrap")
    python = make_environment(work / "own" / ".venv")
    files = sorted((work / "own").rglob("*"))
    settings = (work / "own" / ".venv" / "pyvenv.cfg").read_text()
    result = run(python, work, CHANGES)
    assert result["output"].endswith(settings) and (work / "made").exists(), result
    assert result["output"].count(": Read-only file system\nbash: line 1") == 2, result
    assert sorted((work / "own").rglob("*")) == files, result
    assert (work / "own" / ".venv" / "pyvenv.cfg").read_text() == settings
    assert not (work / "old").exists()
    rule = 'read-only: allow: ["bash(own/.venv/**)"] of your own settings opens it'
    assert result["warnings"] == [f"own/.venv has the Python that runs amplifier, {rule}"]
    assert "warnings" not in run(python, work, "echo x >/usr/new; echo x >own/.venv-new; cat own/.venv/pyvenv.cfg")


@pytest.mark.parametrize("link", [".venv", "own/.venv"])
def test_a_link_to_the_python_of_the_program_is_made_again(work: Path, link: str) -> None:
    require("bwrap")
    make_environment(work / "real")
    (work / "own").mkdir()
    (work / "next").symlink_to("real")
    (work / link).symlink_to(work / "next")
    command = f"mv own old; rm {link} next; mkdir -p {link}/bin; echo x >{link}/bin/python; echo made >made"
    result = run(f"{work}/{link}/bin/python", work, command)
    assert (work / link).readlink() == work / "next" and (work / "next").readlink() == Path("real"), result
    assert (work / "made").exists() and not (work / "old" / ".venv").exists()
    (held,) = work.glob(f"{link}-held-*")
    assert (held / "bin" / "python").read_text() == "x\n"
    said = f"{link} leads to what amplifier runs or obeys: it is a link to {work}/next again"
    assert f"{said}; the other one is {held.relative_to(work)}" in result["warnings"]
    assert "warnings" not in run(f"{work}/{link}/bin/python", work, "true")


def test_a_rule_of_the_person_releases_the_python_of_the_program(work: Path) -> None:
    require("bwrap")
    python = make_environment(work / ".venv")
    run(python, work, "echo x >.venv/bin/new", allow=["bash(.venv/**)"])
    assert (work / ".venv" / "bin" / "new").read_text() == "x\n"


@pytest.fixture(params=["data", "deep/data", ".amplifier", ".amplifier/data"])
def data(request: pytest.FixtureRequest, work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder in the working folder, with settings and a key."""
    folder = work / request.param
    folder.mkdir(mode=0o700, parents=True)
    (folder / "settings.yaml").write_text("mine\n")
    (folder / "keys.json").write_text("key\n")
    monkeypatch.setenv("AMPLIFIER_HOME", str(folder))
    return folder


async def test_a_data_folder_in_the_working_folder_is_hidden(bash: Any, work: Path, data: Path) -> None:
    path = data.relative_to(work)
    top = path.parts[0]
    result = await bash(f"ls -A {path}; cat {path}/*; echo x >{path}/settings.yaml; mv {top} old; echo made >made")
    said = result.output["output"]
    assert "key" not in said.replace("keys.json", "") and "mine" not in said, said
    assert "Read-only file system" in said and "Device or resource busy" in said
    assert (data / "settings.yaml").read_text() == "mine\n" and (work / "made").exists()
    assert "warnings" not in result.output


async def test_a_link_to_the_data_folder_is_made_again(
    bash: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (work / "data").symlink_to(tmp_path / "mine")
    monkeypatch.setenv("AMPLIFIER_HOME", str(work / "data"))
    result = await bash("rm data; mkdir data; echo theirs >data/settings.yaml")
    assert (work / "data").readlink() == tmp_path / "mine", result.output
    assert list((tmp_path / "mine").iterdir()) == []
    assert f"it is a link to {tmp_path}/mine again" in result.output["warnings"][0]


async def test_a_missing_data_folder_is_not_made_by_a_command(
    bash: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(work / "later"))
    result = await bash("mkdir -p later; echo theirs >later/settings.yaml")
    assert "Read-only file system" in result.output["output"]
    assert list((work / "later").iterdir()) == []


@pytest.mark.skipif(find_version() == 0, reason="this kernel has no Landlock")
async def test_landlock_runs_nothing_beside_a_data_folder(mount_tools: Any, work: Path, data: Path) -> None:
    coordinator = await mount_tools(sandbox="landlock")
    own = parse_permissions({"allow": ["bash-unsandboxed(landlock)"]}, "user settings", is_own=True)
    coordinator.guard(PermissionGate(Policy([own]), work))
    result = await coordinator.get("tools", "bash").execute({"command": "cat */settings.yaml"})
    path = data.relative_to(work)
    assert f"the data folder, {path}, lies in the working folder" in result.error["message"]
    assert "set AMPLIFIER_HOME, or install bubblewrap" in result.error["message"]
