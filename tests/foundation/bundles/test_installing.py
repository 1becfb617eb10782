"""What a bundle names and is not installed, and what would provide it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from amplifier_foundation.bundles import check_names, load_bundle_sync
from amplifier_foundation.bundles.installing import missing_from, pip_command, requirements_of

INSTALLED = {"loop-basic", "context-simple"}


def test_what_modules_agents_includes_and_triggers_name_is_told_once_each_with_its_place(write: Any) -> None:
    write("hooks: [{module: hooks-base}]\n", name="base.md", bundle="base")
    bundle = load_bundle_sync(
        write(
            "includes: [./base.md]\nsession: {orchestrator: loop-x, orchestrator_source: 'git+https://host/loop'}\n"
            "tools:\n  - {module: tool-a, source: 'git+https://host/a@main#subdirectory=modules/a'}\n"
            "agents:\n  one: {tools: [{module: tool-a}, {module: tool-b}], session: {context: context-y}}\n"
            "background_sessions: [{name: s, triggers: [{type: timer}, {module: trigger-z}]}]\n"
        )
    )
    bundle.agents["made"] = {"tools": [{"module": "evil @ https://evil"}, 5], "session": 5, "providers": {}}
    missing = missing_from([bundle, bundle], modules=INSTALLED, triggers={"trigger-timer"})
    assert [(each.kind, each.name, each.requirements[0]) for each in missing] == [
        ("orchestrator", "loop-x", "git+https://host/loop"),
        ("tool", "tool-a", "git+https://host/a@main#subdirectory=modules/a"),
        ("hook", "hooks-base", "amplifier-hooks-base"),
        ("context", "context-y", "amplifier-context-y"),
        ("tool", "tool-b", "amplifier-tool-b"),
        ("trigger", "trigger-z", "amplifier-trigger-z"),
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
        ("git+https://host/o/r@v1#subdirectory=a/b", ("git+https://host/o/r@v1#subdirectory=a/b",)),
        ("git+file:///repo", ("git+file:///repo",)),
        ("zip+https://host/a.zip#subdirectory=x", ("https://host/a.zip#subdirectory=x",)),
        ("https://host/x-1.0-py3-none-any.whl", ("https://host/x-1.0-py3-none-any.whl",)),
        ("https://host/readme.md", ("amplifier-x", "amplifier-module-x")),
        ("git+ext::sh -c x", ("amplifier-x", "amplifier-module-x")),
        ("git+https://host/r@--upload-pack=x", ("amplifier-x", "amplifier-module-x")),
        (None, ("amplifier-x", "amplifier-module-x")),
    ],
)
def test_a_source_that_pip_can_take_provides_a_module_else_the_index_does(
    source: str | None, wanted: tuple[str, ...]
) -> None:
    assert requirements_of("x", source) == wanted
    assert pip_command(wanted[0])[:4] == [sys.executable, "-m", "pip", "install"]


def test_an_unknown_module_with_a_source_elsewhere_is_installed_from_there(write: Any) -> None:
    bundle = load_bundle_sync(write("tools: [{module: tool-a, source: 'git+https://host/a'}, {module: tool-b}]\n"))
    told = [problem.message for problem in check_names(bundle, (), INSTALLED)]
    assert [message.partition(" with: ")[2] for message in told] == [
        "amplifier bundle install",
        "pip install amplifier-tool-b",
    ]
