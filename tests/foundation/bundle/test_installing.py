"""What a bundle names and is not installed, and what would provide it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import BundleValidationError
from amplifier_foundation.bundle import check_names, load_bundle_sync
from amplifier_foundation.bundle.installing import missing_from, pip_command
from amplifier_foundation.bundle.packages import ELSEWHERE, OURS, describe_unknown, requirement_of

INSTALLED = {"loop-basic", "context-simple"}


def test_what_modules_agents_includes_and_triggers_name_is_told_once_each_with_its_place(write: Any) -> None:
    write("hooks: [{module: hooks-base}]\n", name="base.md", bundle="base")
    bundle = load_bundle_sync(
        write(
            "includes: [./base.md]\nsession: {orchestrator: loop-x, orchestrator_source: 'git+https://host/loop'}\n"
            "tools:\n  - {module: tool-a, source: 'git+https://host/a@main#subdirectory=modules/a'}\n"
            "agents:\n  one: {tools: [{module: tool-a}, {module: tool-b, package: our-tools>=2}], "
            "session: {context: context-y}}\n"
            "background_sessions: [{name: s, triggers: [{type: timer}, {module: trigger-z, package: zzz}]}]\n"
        )
    )
    bundle.agents["made"] = {"tools": [{"module": "evil @ https://evil"}, 5], "session": 5, "providers": {}}
    missing = missing_from([bundle, bundle], modules=INSTALLED, triggers={"trigger-timer"})
    assert [(each.kind, each.name, each.requirement) for each in missing] == [
        ("orchestrator", "loop-x", "git+https://host/loop"),
        ("tool", "tool-a", "git+https://host/a@main#subdirectory=modules/a"),
        ("hook", "hooks-base", ""),
        ("context", "context-y", ""),
        ("tool", "tool-b", "our-tools>=2"),
        ("trigger", "trigger-z", "zzz"),
    ]
    places = {each.name: str(each.place) for each in missing}
    assert (places["tool-a"], places["hooks-base"]) == ("bundle.md:6:14", "base.md:3:18")
    assert places["trigger-z"].startswith("bundle.md:9:")


def test_code_that_the_bundle_brings_is_not_missing(write: Any, folder: Any) -> None:
    (folder / "t.py").write_text("")
    bundle = load_bundle_sync(
        write("tools: [{module: tool-t, source: ./t.py}]\nagents: {one: {tools: [{module: u, source: ./t.py}]}}\n")
    )
    assert missing_from([bundle], modules=INSTALLED, triggers=()) == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("git+https://host/o/r@v1#subdirectory=a/b", "git+https://host/o/r@v1#subdirectory=a/b"),
        ("git+https://host/o/r", "git+https://host/o/r"),
        ("git+file:///repo", "git+file:///repo"),
        ("zip+https://host/a.zip#subdirectory=x", "https://host/a.zip#subdirectory=x"),
        ("https://host/x-1.0-py3-none-any.whl", "https://host/x-1.0-py3-none-any.whl"),
        ("https://host/readme.md", ""),
        ("git+ext::sh -c x", ""),
        ("git+https://host/r@--upload-pack=x", ""),
        (None, ""),
    ],
)
def test_a_source_that_pip_can_take_provides_a_module(source: str | None, wanted: str) -> None:
    assert requirement_of("x", source) == wanted
    assert requirement_of("x", source, "named") == (wanted or "named")


def test_pip_installs_where_this_program_runs() -> None:
    assert pip_command("x")[:5] == [sys.executable, "-P", "-m", "pip", "install"]


def test_the_names_of_our_packages_are_those_of_the_plugins() -> None:
    root = Path(__file__).parents[3]
    plugins = [each for each in root.glob("plugins/*/pyproject.toml") if "entry-points" in each.read_text("utf-8")]
    shipped = {each.parent.name.removeprefix("amplifier-") for each in plugins}
    assert shipped - {"acp", "bundle-foreman", "dashboard", "sandbox"} == OURS  # these are no names in a bundle
    assert {each.removeprefix("amplifier-") for each in ELSEWHERE.values()} <= shipped
    assert requirement_of("trigger-timer") == "amplifier-trigger-timer"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "tool-filesytem",
            "unknown tool 'tool-filesytem'; did you mean 'tool-filesystem'? Installed: tool-filesystem.",
        ),
        ("filesystem", "unknown tool 'filesystem'; did you mean 'tool-filesystem'? Installed: tool-filesystem."),
        ("tool-emt", "unknown tool 'tool-emt'; did you mean 'tool-emit'? Installed: tool-filesystem."),
        (
            "tool-emit",
            "unknown tool 'tool-emit'. Installed: tool-filesystem. Install it with: pip install amplifier-tool-emit",
        ),
        (
            "tool-weather",
            "unknown tool 'tool-weather'. Installed: tool-filesystem. Name its package beside it ('package: NAME'), "
            "and run: amplifier bundle install",
        ),
    ],
)
def test_no_install_is_advised_for_a_typo_or_for_a_package_that_nobody_named(name: str, told: str) -> None:
    assert describe_unknown("tools", name, {"tool-filesystem", "loop-basic"}) == told


def test_a_typo_is_not_installed_unless_the_bundle_names_its_package(write: Any) -> None:
    bundle = load_bundle_sync(
        write("tools:\n  - {module: tool-filesytem}\n  - {module: tool-filesystems, package: their-tools}\n")
    )
    missing = missing_from([bundle], modules={*INSTALLED, "tool-filesystem"}, triggers=())
    assert [(each.name, each.requirement, each.suggestion) for each in missing] == [
        ("tool-filesytem", "", "; did you mean 'tool-filesystem'?"),
        ("tool-filesystems", "their-tools", ""),
    ]


@pytest.mark.parametrize("package", ["--index-url=https://evil", "a b", "-r", "x @ https://evil", "x;y", "x\n"])
def test_a_package_is_a_name_and_nothing_else(package: str, write: Any) -> None:
    with pytest.raises(BundleValidationError, match=r"tools\[0\].package: must match"):
        load_bundle_sync(write(f"tools: [{{module: tool-a, package: {json.dumps(package)}}}]\n"))


def test_an_unknown_module_is_installed_from_its_source_or_its_package(write: Any) -> None:
    bundle = load_bundle_sync(
        write("tools: [{module: tool-a, source: 'git+https://host/a'}, {module: tool-b, package: their-b}]\n")
    )
    told = [problem.message for problem in check_names(bundle, (), INSTALLED)]
    assert [message.partition(" with: ")[2] for message in told] == ["amplifier bundle install", "pip install their-b"]


def test_a_folder_with_a_pip_of_its_own_does_not_get_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("open('ran', 'w')")
    said = subprocess.run(pip_command("./missing"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "missing" in said.stderr
    assert not (tmp_path / "ran").exists()
