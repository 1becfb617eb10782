"""Test the tools on the kernel's real coordinator: mounting, configuration, and the check of input."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_tool_filesystem import config_schema, mount

if TYPE_CHECKING:
    from pathlib import Path


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


async def mounted(config: dict[str, Any] | None = None, session_folder: Path | None = None) -> dict[str, Any]:
    coordinator = ModuleCoordinator(session_id="test")
    if session_folder is not None:
        coordinator.register_capability("session.working_dir", str(session_folder))
    await mount(coordinator, config)
    tools: dict[str, Any] = coordinator.get("tools")
    return tools


async def test_six_tools_are_mounted(tmp_path: Path) -> None:
    tools = await mounted(session_folder=tmp_path)
    assert sorted(tools) == ["edit_file", "edit_notebook", "glob", "grep", "read_file", "write_file"]
    assert all(tool.description for tool in tools.values())


async def test_without_allow_write_nothing_that_writes_is_mounted(tmp_path: Path) -> None:
    assert sorted(await mounted({"allow_write": False}, tmp_path)) == ["glob", "grep", "read_file"]


async def test_the_sessions_folder_counts_before_the_configured_one_and_that_before_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("session", "configured", "current"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "here").write_text(name)
    monkeypatch.chdir(tmp_path / "current")
    configured = {"working_dir": str(tmp_path / "configured")}
    read = []
    for tools in (await mounted(configured, tmp_path / "session"), await mounted(configured), await mounted()):
        read.append((await tools["read_file"].execute({"file_path": "here"})).output["content"])
    assert read == ["session", "configured", "current"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"alow_write": True}, "alow_write: unknown key; did you mean 'allow_write'?"),
        (
            {"zzz": 1},
            "zzz: unknown key; known are working_dir, allow_write, max_bytes, max_image_bytes, read_before_write, "
            "grep_timeout",
        ),
        ({"allow_write": "no"}, "allow_write: Input should be a valid boolean"),
        ({"max_bytes": 0}, "max_bytes: Input should be greater than or equal to 1"),
        ({"max_bytes": True}, "max_bytes: Input should be a valid integer"),
        ({"grep_timeout": 0}, "grep_timeout: Input should be greater than 0"),
        ({"grep_timeout": float("inf")}, "grep_timeout: Input should be a finite number"),
        ({"working_dir": 5}, "working_dir: Input should be a valid string"),
        ({"working_dir": "/nonexistent"}, "working_dir: /nonexistent is not a folder; create it or name another one"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        await mounted(config)
    assert str(caught.value) == f"tool-filesystem: {message}"


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    properties = config_schema()["properties"]
    limits = {"max_bytes", "max_image_bytes", "grep_timeout"}
    assert set(properties) == {"working_dir", "allow_write", "read_before_write", *limits}
    assert all(about["description"] for about in properties.values())


async def test_each_schema_is_json_that_allows_nothing_it_does_not_name(tmp_path: Path) -> None:
    for tool in (await mounted(session_folder=tmp_path)).values():
        schema = json.loads(json.dumps(tool.input_schema))
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("read_file", {}, "'file_path' is missing"),
        ("read_file", ["a"], "the input must be an object, not list"),
        ("read_file", None, "the input must be an object, not NoneType"),
        ("read_file", {"file_path": 5}, "'file_path' must be of type string, not int"),
        ("read_file", {"file_path": ""}, "'file_path' must not be empty"),
        ("read_file", {"file_path": "a", "path": "b"}, "unknown field 'path'; did you mean 'file_path'?"),
        ("read_file", {"file_path": "a", "offset": 0}, "'offset' must be 1 or more, not 0"),
        ("read_file", {"file_path": "a", "limit": True}, "'limit' must be of type integer, not bool"),
        ("read_file", {"file_path": "a", "zzz": 1}, "unknown field 'zzz'; known are file_path, offset, limit"),
        ("write_file", {"file_path": "a"}, "'content' is missing"),
        ("edit_file", {"file_path": "a", "old_string": "", "new_string": "x"}, "'old_string' must not be empty"),
        ("glob", {"pattern": "*", "max_results": 10_001}, "'max_results' must be from 1 to 10000, not 10001"),
        ("grep", {"pattern": "x", "ignore_case": "yes"}, "'ignore_case' must be of type boolean, not str"),
    ],
)
async def test_input_that_does_not_fit_the_schema_is_a_failed_result(
    tmp_path: Path, tool: str, given: Any, message: str
) -> None:
    result = await (await mounted(session_folder=tmp_path))[tool].execute(given)
    assert (result.success, result.error) == (False, {"message": message, "type": "InvalidInput"})
    assert is_empty(tmp_path)


async def test_the_installed_entry_point_mounts_them(tmp_path: Path) -> None:
    coordinator = ModuleCoordinator(session_id="test")
    load = await ModuleLoader().load("tool-filesystem", {"working_dir": str(tmp_path)}, coordinator=coordinator)
    await load(coordinator)
    assert "read_file" in coordinator.get("tools")


def test_importing_the_package_loads_neither_pydantic_nor_asyncio() -> None:
    code = (
        "import sys, amplifier_tool_filesystem; "
        "print([name for name in ('pydantic', 'asyncio', 'amplifier_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
