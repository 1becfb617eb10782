"""The configuration of every module that a bundle names is checked, wherever the bundle names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from amplifier_core import load_plugins
from amplifier_foundation.bundle.check import check_file, check_loaded
from amplifier_foundation.bundle.load import load_bundle_sync

SOURCED = """providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
session:
  orchestrator:
    module: loop-basic
    source: git+https://example.com/loop@main
    config: {max_iterationz: 2}
tools:
  - module: tool-filesystem
    source: git+https://example.com/files@main
    config: {raed: 1}
  - module: tool-own
    source: ./own.py
    config: {anything: goes}
"""
FAMILY = """providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
agents:
  include: [logger]
  inline:
    description: Looks around.
    tools: [{module: tool-filesystem, config: {raed: 1}}]
    session: {orchestrator: {module: loop-basic, config: {max_iterationz: 2}}}
background_sessions:
  - name: worker
    bundle: ./worker.md
"""
WORKER = """providers: [{module: provider-playbook, config: {otherwise: {say: hi}}}]
tools: [{module: tool-filesystem, config: {raed: 1}}]
"""
LOGGER = """---
meta: {name: logger, description: Logs.}
hooks: [{module: hooks-logging, config: {moed: x}}]
provider_preferences: [{provider: antropic}]
---
You log.
"""
LOGGER_TOLD = [
    "agents/logger.md:3:48: warning[AMP114] hooks[0].config.moed: hooks-logging: moed: unknown key; ",
    "agents/logger.md:4:35: warning[AMP122] provider_preferences[0].provider: no provider is called 'antropic'",
]
IMPORTS = """
import asyncio, sys
from amplifier_core import load_plugins
from amplifier_foundation.bundle.check import check_loaded
from amplifier_foundation.bundle.load import load_bundle_sync
assert check_loaded(load_bundle_sync("bundle.md"), load_plugins()) == []
print(*(each for each in sys.modules if each in ("amplifier_tool_filesystem", "amplifier_hooks_logging")))
"""


def told(path: Path | str) -> list[str]:
    return sorted(str(each) for each in check_file(path, load_plugins()))


def assert_told(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected)
    assert [line for line, begin in zip(found, sorted(expected), strict=True) if not line.startswith(begin)] == []


def test_a_module_from_elsewhere_is_the_installed_one_and_its_configuration_is_checked(write: Any) -> None:
    (write().parent / "own.py").write_text("async def mount(coordinator, config=None):\n    pass\n", encoding="utf-8")
    assert_told(
        told(write(SOURCED)),
        [
            "bundle.md:12:14: warning[AMP114] tools[0].config.raed: tool-filesystem: raed: unknown key; ",
            "bundle.md:8:14: error[AMP114] session.orchestrator.config.max_iterationz: loop-basic: max_iterationz: ",
        ],
    )


def write_family(write: Any) -> Path:
    (write().parent / "agents").mkdir()
    (write().parent / "agents" / "logger.md").write_text(LOGGER, encoding="utf-8")
    write(WORKER, name="worker.md", bundle="worker")
    path: Path = write(FAMILY)
    return path


def test_the_modules_of_agents_and_of_the_bundles_of_background_sessions_are_checked(write: Any) -> None:
    at_worker = "worker.md:4:44: error[AMP114] tools[0].config.raed: tool-filesystem: raed: unknown key; "
    path = write_family(write)
    assert_told(
        told(path),
        [
            *LOGGER_TOLD,
            "bundle.md:8:48: warning[AMP114] agents.inline.tools[0].config.raed: tool-filesystem: raed: unknown key; ",
            "bundle.md:9:59: warning[AMP114] agents.inline.session.orchestrator.config.max_iterationz: loop-basic: ",
            at_worker,
        ],
    )
    before_a_start = check_loaded(load_bundle_sync(str(path)), load_plugins(), runs=True)
    assert {each.severity for each in before_a_start} == {"warning"}
    assert_told(sorted(map(str, before_a_start)), [LOGGER_TOLD[1], at_worker.replace("error", "warning")])


def test_a_start_is_refused_only_for_modules_that_a_session_cannot_be_without(write: Any) -> None:
    loop = "session: {orchestrator: {module: loop-basic, config: {max_iterationz: 2}}}\n"
    path = write_family(write)
    write(WORKER + loop, name="worker.md", bundle="worker")
    for bundle, code in ((path, ["AMP114"]), (write(WORKER), ["AMP114"])):
        found = check_loaded(load_bundle_sync(str(bundle)), load_plugins(), runs=True)
        assert [each.code for each in found if each.severity == "error"] == code


def test_the_file_of_an_agent_is_checked_with_its_modules(write: Any) -> None:
    write_family(write)
    assert_told(told("agents/logger.md"), LOGGER_TOLD)


def test_a_run_imports_no_module_of_agents_and_workers_to_check_it(write: Any) -> None:
    write_family(write)
    (Path("agents") / "logger.md").write_text(LOGGER.replace("antropic", "anthropic"), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
