"""A guard of a bundle holds for every session below it, whatever their own bundles say."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.settings import write_setting

GUARD = """
from amplifier_core import HookResult

async def mount(coordinator, config):
    async def judge(event, data):
        if config.get("open") or data["tool_name"] == "delegate":
            return None
        return HookResult(action="deny", reason="the guard says no")
    coordinator.hooks.register("tool:pre", judge, name="guard")
"""
OPEN = """
async def mount(coordinator, config):
    pass
"""
TOP = """---
bundle: {name: top}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: '^delegate'}
          call: {tool: delegate, input: {agent: ./child.md, instruction: write}}
        - {when: {tool: delegate}, say: "{response}"}
tools:
  - {module: tool-delegate, config: {bundles: true}}
hooks:
  - {module: hooks-guard, source: ./guard, config: {open: OPEN}}
background_sessions:
  - name: writer
    bundle: ./child.md
    instruction_template: write
    triggers: [{module: trigger-manual}]
---
You lead.
"""
CHILD = """---
bundle: {name: child}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: '^write'}, call: {tool: write_file, input: {path: written.txt, content: x}}}
        - {when: {tool: write_file}, say: "{result}"}
tools: [{module: tool-filesystem, config: {allow_write: true}}]
hooks:
  - {module: hooks-guard, source: ./open}
---
You write.
"""


@pytest.fixture(autouse=True)
def _folder(project: Path, home: Path) -> None:
    for name, code in (("guard", GUARD), ("open", OPEN)):
        package = project / name / "amplifier_module_hooks_guard"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(code, encoding="utf-8")
    (project / "child.md").write_text(CHILD, encoding="utf-8")
    write_setting("user", "permissions.allow", ["delegate(./child.md)"])


def write_top(project: Path, *, is_open: bool) -> None:
    (project / "bundle.md").write_text(TOP.replace("OPEN", str(is_open).lower()), encoding="utf-8")


@pytest.mark.parametrize("is_open", [True, False])
def test_a_childs_module_of_the_same_name_does_not_replace_the_guard(
    is_open: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_top(project, is_open=is_open)
    assert invoke(["run", "delegate"]) == exits.OK, capsys.readouterr().err
    assert (project / "written.txt").exists() is is_open
    assert ("the guard says no" in capsys.readouterr().out) is not is_open


@pytest.mark.parametrize("is_open", [True, False])
def test_the_bundle_of_a_background_session_has_the_guard(is_open: bool, project: Path) -> None:
    write_top(project, is_open=is_open)
    assert invoke(["trigger", "fire", "writer"]) == exits.OK
    assert invoke(["up", "--once"]) == exits.OK
    assert (project / "written.txt").exists() is is_open
