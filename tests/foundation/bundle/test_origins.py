"""Where the values of a composed bundle were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.errors import BundleValidationError
from amplifier_foundation.bundle import Bundle, check_bundle, load_bundle_sync
from amplifier_foundation.bundle.origins import origin, values
from amplifier_foundation.documents.positions import format_path


def test_each_value_comes_from_the_last_bundle_that_says_it(write: Any) -> None:
    write(
        "tools:\n  - module: tool-a\n    config: {x: 1, y: 2}\nspawn: {exclude_tools: [a]}\n", "Base.", name="base.md"
    )
    top = load_bundle_sync(
        write("includes: [./base.md]\ntools:\n  - module: tool-b\n  - {module: tool-a, config: {y: 3}}\n")
    )
    told = {path: (value, str(place)) for path, value, place in values(top)}
    assert told == {
        ("spawn", "exclude_tools", 0): ("a", "base.md:6:25"),
        ("tools", 0, "module"): ("tool-a", "bundle.md:6:14"),
        ("tools", 0, "config", "x"): (1, "base.md:5:17"),
        ("tools", 0, "config", "y"): (3, "bundle.md:6:34"),
        ("tools", 1, "module"): ("tool-b", "bundle.md:5:13"),
    }


def test_what_a_program_made_comes_from_nowhere(folder: Path) -> None:
    bundle = Bundle("made", tools=[{"module": "tool-a"}])
    assert origin(bundle, ("tools", 0, "module")) is None


def test_items_of_lists_that_were_joined_come_from_the_bundle_that_brought_them(write: Any) -> None:
    write("tools: [{module: tool-a, config: {names: [one]}}]\n", name="base.md")
    top = load_bundle_sync(
        write("includes: [./base.md]\ntools:\n  - module: tool-a\n    config: {names: [two, three]}\n")
    )
    told = {value: str(place) for path, value, place in values(top) if "names" in path}
    assert told == {"one": "base.md:3:43", "two": "bundle.md:6:22", "three": "bundle.md:6:27"}


def test_a_module_that_was_named_alone_comes_from_that_name(write: Any) -> None:
    top = load_bundle_sync(write("session: {orchestrator: loop-basic}\n"))
    top.session["orchestrator"] = {"module": "loop-basic"}
    assert str(origin(top, ("session", "orchestrator", "module"))) == "bundle.md:3:25"


def test_agents_of_files_contexts_and_background_sessions_are_told_where_they_stand(write: Any, folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "one.md").write_text("---\nmeta: {name: one, description: First.}\n---\nWork.\n")
    (folder / "a.md").write_text("a")
    write("context: {named: a.md}\n", name="base.md", bundle="base")
    top = load_bundle_sync(
        write(
            "includes: [./base.md]\nagents: {include: [one]}\ncontext: {include: [a.md]}\n"
            "session: {orchestrator: {module: loop-x, config: {background_sessions: [{name: b, pool_size: 2}]}}}\n"
            "background_sessions: [{name: a, timeout: 5}]\n"
        )
    )
    told = {format_path(path): (value, str(place)) for path, value, place in values(top)}
    assert told["agents.one.description"] == ("First.", "agents/one.md:2:32")
    assert told["agents.one.instruction"] == ("Work.", "agents/one.md")
    assert told['context["base:named"]'] == ("a.md", "base.md:3:18")
    assert told['context["demo:a.md"]'] == ("a.md", "bundle.md:5:20")
    assert told["background_sessions[0].timeout"] == (5, "bundle.md:7:42")
    assert told["background_sessions[1].pool_size"] == (2, "bundle.md:6:94")


async def test_workflows_of_an_included_bundle_stay_beside_those_of_the_bundle(write: Any, folder: Path) -> None:
    write(
        "background_sessions: [{name: b, workflow: base}]\n"
        "workflows:\n  base: {steps: [{id: x, value: 1}]}\n  both: {input: {a: 1}, steps: [{id: x, value: 2}]}\n",
        name="base.md",
    )
    path = write(
        "includes: [./base.md]\nworkflows:\n  both: {steps: [{id: y, value: 3}]}\n  own: {steps: [{id: z, value: 4}]}\n"
    )
    top = load_bundle_sync(path)
    assert top.workflows == {
        "base": {"steps": [{"id": "x", "value": 1}]},
        "both": {"steps": [{"id": "y", "value": 3}]},
        "own": {"steps": [{"id": "z", "value": 4}]},
    }
    places = [str(origin(top, ("workflows", name, "steps", 0, "value"))) for name in top.workflows]
    assert places == ["base.md:5:33", "bundle.md:5:33", "bundle.md:6:32"]
    assert origin(top, ("workflows", "both", "input")) is None
    assert [each for each in await check_bundle(path, load_plugins(environ={})) if each.code == "AMP120"] == []


@pytest.mark.parametrize(("value", "kind"), [("[{name: a}]", "a list"), ("text", "text"), ("7", "a whole number")])
def test_workflows_that_are_no_mapping_are_an_error_with_its_place(write: Any, value: str, kind: str) -> None:
    with pytest.raises(BundleValidationError, match=rf"bundle\.md:3:12: .* workflows: must be a mapping, not {kind}"):
        load_bundle_sync(write(f"workflows: {value}\n"))


def test_empty_workflows_leave_those_of_an_include(write: Any) -> None:
    write("workflows: {base: {steps: [{id: x, value: 1}]}}\n", name="base.md")
    assert load_bundle_sync(write("includes: [./base.md]\nworkflows:\n")).workflows == {
        "base": {"steps": [{"id": "x", "value": 1}]}
    }
