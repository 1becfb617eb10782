"""`tracker:` of a background session: what it takes, and what is told before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core import hookimpl, load_plugins
from amplifier_foundation.bundle import check_bundle, load_bundle_sync
from amplifier_foundation.bundle.background_config import TrackerConfig

FRONT = "providers: [{module: provider-playbook}]\nbackground_sessions: [{name: w, instruction: x, tracker: %s}]\n"


async def told(path: Any, environ: dict[str, str] | None = None) -> list[str]:
    return [str(each) for each in await check_bundle(path, load_plugins(environ=environ or {}))]


@pytest.mark.parametrize(
    ("written", "config"),
    [
        ("issue", {}),
        ("{name: issue}", {}),
        ("{name: issue, config: }", {}),
        ("{name: issue, config: {reopen: 2}}", {"reopen": 2}),
    ],
)
async def test_a_tracker_is_named_with_or_without_a_config(written: str, config: dict[str, int], write: Any) -> None:
    path = write(FRONT % written)
    [background] = load_bundle_sync(path).background_sessions
    assert background.tracker == TrackerConfig(name="issue", config=config)
    assert await told(path) == []


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "isue",
            "bundle.md:4:58: error[AMP110] background_sessions[0].tracker: unknown tracker 'isue'; "
            "did you mean 'issue'? Installed: issue",
        ),
        (
            "{name: issue, config: {reopn: 1}}",
            "bundle.md:4:81: error[AMP114] background_sessions[0].tracker.config.reopn: tracker 'issue': "
            "reopn: unknown key; known is reopen",
        ),
        (
            "{name: issue, config: {reopen: -1}}",
            "bundle.md:4:81: error[AMP114] background_sessions[0].tracker.config.reopen: tracker 'issue': "
            "reopen: must be 0 to 100, not -1",
        ),
        ("5", "bundle.md:4:58: error[AMP103] background_sessions[0].tracker: must be a mapping, not a whole number"),
        (
            "''",
            "bundle.md:4:58: error[AMP104] background_sessions[0].tracker.name: "
            "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}",
        ),
        (
            "{name: issue, config: 5}",
            "bundle.md:4:80: error[AMP103] background_sessions[0].tracker.config: "
            "must be a mapping, not a whole number",
        ),
        (
            "{name: issue, confg: {}}",
            "bundle.md:4:72: error[AMP102] background_sessions[0].tracker.confg: unknown key; did you mean 'config'?",
        ),
    ],
)
async def test_a_tracker_that_cannot_work_is_told_with_its_place(written: str, problem: str, write: Any) -> None:
    assert await told(write(FRONT % written)) == [problem]


async def test_a_missing_package_of_a_tracker_is_named(write: Any) -> None:
    found = await told(write(FRONT % "issue"), {"AMPLIFIER_BLOCK_PLUGINS": "tool-issue"})
    assert [each.partition(": error")[2] for each in found] == [
        "[AMP110] background_sessions[0].tracker: unknown tracker 'issue'. Installed: none. "
        "Install it with: pip install amplifier-tool-issue"
    ]


async def test_a_tracker_that_fails_in_its_own_way_is_an_error_and_no_traceback(write: Any) -> None:
    def fail(config: object) -> None:
        raise RuntimeError("it has a fault")

    class Broken:
        @hookimpl
        def amplifier_register_tracker(self, register: Any) -> None:
            register("broken", fail)

    plugins = load_plugins(environ={})
    plugins.register(Broken(), "broken")
    [problem] = await check_bundle(write(FRONT % "broken"), plugins)
    assert str(problem).endswith("error[AMP114] background_sessions[0].tracker: tracker 'broken': it has a fault")
