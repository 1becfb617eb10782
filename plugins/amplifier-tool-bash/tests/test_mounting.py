"""Test the tools on the kernel's real coordinator: mounting, configuration, and the check of input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_tool_bash import check_config, config_schema
from amplifier_tool_bash.config import read_config

README = Path(__file__).parents[1] / "README.md"


async def test_three_tools_are_mounted(mount_tools: Any) -> None:
    tools = (await mount_tools()).get("tools")
    assert sorted(tools) == ["bash", "bash_kill", "bash_output"]
    assert all(tool.description for tool in tools.values())
    for tool in tools.values():
        schema = json.loads(json.dumps(tool.input_schema))
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sandbx": "off"}, "sandbx: unknown key; did you mean 'sandbox'?"),
        ({"sandbox": "none"}, "sandbox: Input should be 'auto', 'bubblewrap', 'landlock', 'sandbox-exec' or 'off'"),
        ({"network": ["example.com"]}, "network: Input should be a valid boolean"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"timeout": 60, "max_timeout": 10}, "max_timeout: must be at least timeout (60)"),
        ({"timeout": float("inf")}, "timeout: Input should be a finite number"),
        ({"max_output_chars": 10}, "max_output_chars: Input should be greater than or equal to 200"),
        ({"limits": {"memory": 5}}, "limits.memory: unknown key; did you mean 'memory_mb'?"),
        ({"limits": {"open_files": 1}}, "limits.open_files: Input should be greater than or equal to 16"),
        (
            {"pass_environment": ["MY_API_KEY"]},
            "pass_environment: MY_API_KEY may be a secret, or change what programs do; commands do not get it",
        ),
        (
            {"pass_environment": ["LD_PRELOAD"]},
            "pass_environment: LD_PRELOAD may be a secret, or change what programs do; commands do not get it",
        ),
        ({"readable": ["/nonexistent"]}, "readable: /nonexistent is not a folder"),
        ({"readable": ["/"]}, "readable: / holds your home folder or secrets; name a folder inside of it"),
        ({"working_dir": 5}, "working_dir: Input should be a valid string"),
        ({"working_dir": "/nonexistent"}, "working_dir: /nonexistent is not a folder; create it or name another one"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_config(config)
    assert str(caught.value) == f"tool-bash: {message}"


def test_a_call_may_take_as_long_as_one_that_says_nothing() -> None:
    assert read_config({"timeout": 900}, None).max_timeout == 900
    assert read_config({"max_timeout": 60}, None).max_timeout == 60


def test_the_folder_of_keys_is_not_made_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (".ssh", "~", "~/.ssh", str(tmp_path.parent)):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match="holds your home folder or secrets"):
            check_config({"readable": [given]})


@pytest.mark.parametrize("given", ["data", "data/cache", "."])
def test_the_data_folder_is_not_made_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    (tmp_path / "own" / "data" / "cache").mkdir(parents=True)
    (tmp_path / "own" / "other").mkdir()
    (tmp_path / "way").symlink_to("own/data")
    monkeypatch.chdir(tmp_path / "own")
    for home in (tmp_path / "own" / "data", tmp_path / "way"):
        monkeypatch.setenv("AMPLIFIER_HOME", str(home))
        with pytest.raises(ValueError, match="holds amplifier's own data, or is in it; name another folder"):
            check_config({"readable": [given]})
        check_config({"readable": ["other"]})


def test_the_readme_and_the_schema_describe_every_key() -> None:
    properties = config_schema()["properties"]
    documented = re.findall(r"^\| `(\w+)` \|", README.read_text().partition("| tool |")[0], flags=re.M)
    assert documented == list(properties)
    assert all(about.get("description") for about in properties.values())


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("bash", {}, "'command' is missing"),
        ("bash", ["ls"], "the input must be an object, not list"),
        ("bash", {"command": 5}, "'command' must be of type string, not int"),
        ("bash", {"command": " "}, "'command' must not be empty"),
        ("bash", {"command": "a\0"}, "'command' has a NUL, or half of a surrogate pair; no shell can get it"),
        ("bash", {"command": "a\ud800"}, "'command' has a NUL, or half of a surrogate pair; no shell can get it"),
        ("bash", {"command": "ls", "timeout": 0}, "'timeout' must be above 0 and at most 600, not 0"),
        ("bash", {"command": "ls", "timeout": 601}, "'timeout' must be above 0 and at most 600, not 601"),
        ("bash", {"command": "ls", "timeout": True}, "'timeout' must be of type number, not bool"),
        ("bash", {"command": "ls", "background": "yes"}, "'background' must be of type boolean, not str"),
        ("bash", {"command": "ls", "dir": "."}, "unknown field 'dir'; known are command, timeout, cwd, background"),
        ("bash", {"command": "ls", "cwd": "gone"}, "'gone' is not a folder of the working folder"),
        ("bash_output", {"id": "x"}, "no command in the background has the id 'x'; known are: none"),
        ("bash_kill", {}, "'id' is missing"),
    ],
)
async def test_input_that_does_not_fit_the_schema_is_a_failed_result(
    mount_tools: Any, tool: str, given: Any, message: str
) -> None:
    result = await (await mount_tools()).get("tools", tool).execute(given)
    assert (result.success, result.error["message"]) == (False, message)


async def test_the_installed_entry_point_mounts_them(tmp_path: Path) -> None:
    coordinator = ModuleCoordinator(session_id="test")
    load = await ModuleLoader().load("tool-bash", {"working_dir": str(tmp_path)}, coordinator=coordinator)
    await load(coordinator)
    assert "bash" in coordinator.get("tools")


def test_importing_the_package_loads_neither_pydantic_nor_asyncio() -> None:
    code = (
        "import sys, amplifier_tool_bash; "
        "print([name for name in ('pydantic', 'asyncio', 'subprocess', 'amplifier_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
