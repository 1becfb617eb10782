"""Test the contract of hook modules by its suites, and the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.validation.behavioral import HookBehaviorTests
from amplifier_core.validation.structural import HookStructuralTests
from amplifier_hooks_logging import config_schema, mount, on_session_ready
from amplifier_hooks_logging.config import read_config
from amplifier_hooks_logging.paths import log_path, slug


class TestBehavior(HookBehaviorTests):
    pass


class TestStructure(HookStructuralTests):
    pass


async def test_mounting_touches_no_file(tmp_path: Path, home: Path) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    cleanup = await mount(coordinator, None)
    await on_session_ready(coordinator)
    cleanup()
    cleanup()
    assert not home.exists()


async def test_a_session_that_did_not_mount_it_gets_ready_without_it() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    await on_session_ready(coordinator)
    assert coordinator.hooks.list_handlers() == {}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_byte": 1}, "max_byte: unknown key; did you mean 'max_bytes'?"),
        (
            {"level": "INFO"},
            "level: unknown key; known are path, max_bytes, keep, raw, events, additional_events, exclude",
        ),
        ({"path": ""}, "path: must be the path of a file"),
        ({"path": 7}, "path: Input should be a valid string"),
        ({"path": "{sesion}/log"}, "path: unknown placeholder '{sesion}'; known are home, project, session_id"),
        ({"max_bytes": 0}, "max_bytes: Input should be greater than or equal to 1"),
        ({"max_bytes": True}, "max_bytes: Input should be a valid integer"),
        (
            {"additional_events": ["a*b"]},
            "additional_events: 'a*b' is not an event name; only its last character may be a *, as in 'tool:*'",
        ),
        ({"keep": -1}, "keep: Input should be greater than or equal to 0"),
        ({"raw": "no"}, "raw: Input should be a valid boolean"),
        ({"events": "tool:*"}, "events: Input should be a valid list"),
        (
            {"exclude": ["*:pre"]},
            "exclude: '*:pre' is not an event name; only its last character may be a *, as in 'tool:*'",
        ),
        ({"exclude": [1]}, "exclude: Input should be a valid string"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_with_its_key(config: dict[str, Any], message: str) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    with pytest.raises(ValueError) as refused:
        await mount(coordinator, config)
    assert str(refused.value) == f"hooks-logging: {message}"
    assert coordinator.hooks.list_handlers() == {}


DEFAULT = "{home}/projects/{project}/sessions/{session_id}/events.jsonl"


async def test_by_default_the_log_lies_with_the_session_s_other_files(session: Any, work: Path, home: Path) -> None:
    await session(path=DEFAULT).execute("hello")
    assert (home / "projects" / str(work).replace("/", "-") / "sessions" / "s" / "events.jsonl").is_file()


def test_without_a_chosen_home_it_is_the_system_s_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from platformdirs import user_data_path

    monkeypatch.delenv("AMPLIFIER_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert log_path("{home}/log", "s", tmp_path) == user_data_path("amplifier") / "log"


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("logs/{session_id}.jsonl", "/work/app/logs/s.jsonl"),
        ("/var/log/{project}/{session_id}{session_id}", "/var/log/-work-app/ss"),
    ],
)
def test_a_path_is_filled_in_and_begins_in_the_working_folder(template: str, path: str) -> None:
    assert log_path(template, "s", "/work/app") == Path(path)


def test_a_project_has_the_folder_that_other_tools_give_it() -> None:
    assert [slug(each) for each in ("/work/app", "C:\\work\\app", "/")] == ["-work-app", "-C-work-app", "-"]
    assert len(slug("/" + "é" * 300).encode()) <= 209


def test_no_session_id_leads_out_of_the_folder_or_to_another_session_s() -> None:
    ids = ["..", ".", "../x", "/etc/x", "a/b", "a-b", "a\\b", "", ".hidden", "a\0b", "x" * 300, "x" * 301, "ä"]
    folder = Path("/data")
    paths = [log_path("/data/{session_id}/log", each, "/") for each in ids]
    assert all(path.parent.parent == folder and path.parent.name[0] not in "." for path in paths)
    assert len({path.resolve() for path in paths}) == len(ids)
    assert max(len(path.parent.name) for path in paths) < 255


def test_the_schema_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert set(properties) == {"path", "max_bytes", "keep", "raw", "events", "additional_events", "exclude"}
    assert all(about["description"] for about in properties.values())


def test_the_keys_of_bundles_in_the_field_are_understood() -> None:
    settings = read_config(
        {
            "mode": "session-only",
            "auto_discover": True,
            "session_log_template": "~/logs/{project}/{session_id}.jsonl",
            "additional_events": ["work:done"],
        }
    )
    assert settings.path == "~/logs/{project}/{session_id}.jsonl"
    assert settings.selection.exact_names() == ["work:done"]
    assert settings.selection.takes("tool:pre")
