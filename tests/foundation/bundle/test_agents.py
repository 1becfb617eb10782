"""Agents in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import BundleProblemsError, load_bundle_sync
from amplifier_foundation.bundle.check import check_file

AGENT = """---
meta: {name: reviewer, description: Reads code}
tools: [{module: tool-check, source: ./mods/check.py}]
model_role: [fast, general]
---
Review what you are given.
"""


@pytest.fixture
def agent(folder: Path) -> Path:
    for path, text in (("agents/reviewer.md", AGENT), ("mods/check.py", "")):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder / "agents/reviewer.md"


@pytest.mark.parametrize("reference", ["reviewer", "demo:reviewer", "demo:agents/reviewer.md"])
def test_an_agent_is_read_from_its_file(write: Any, agent: Path, folder: Path, reference: str) -> None:
    bundle = load_bundle_sync(write(f"agents: {{include: ['{reference}'], inline: {{description: x}}}}\n"))
    assert bundle.problems == []
    assert bundle.agents == {
        reference: {
            "name": reference,
            "description": "Reads code",
            "tools": [{"module": "tool-check", "source": str(folder / "mods/check.py")}],
            "model_role": ["fast", "general"],
            "instruction": "Review what you are given.",
            "source_path": str(agent),
        },
        "inline": {"description": "x"},
    }
    assert bundle.origins[str(agent)]
    assert bundle.resolve_agent_path("reviewer") == agent


def test_an_agent_of_an_included_bundle_is_found_by_its_name(write: Any, agent: Path) -> None:
    write("agents: {include: [reviewer]}\n")
    top = write("includes: [./bundle.md]\nagents: {include: ['demo:reviewer']}\n", name="top/bundle.md", bundle="top")
    top.write_text(top.read_text().replace("./bundle.md", "../bundle.md"))
    bundle = load_bundle_sync(top)
    assert [bundle.agents[name]["description"] for name in ("reviewer", "demo:reviewer")] == ["Reads code"] * 2


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        ("missing", "bundle.md:3:20: error[AMP108] agents.include[0]: agents/missing.md does not exist"),
        ("other:reviewer", "bundle.md:3:20: error[AMP108] agents.include[0]: no bundle 'other' is included"),
        ("../../x", "bundle.md:3:20: error[AMP107] agents.include[0]: leads out of the bundle's folder ."),
    ],
)
def test_an_agent_that_is_not_there_is_told_with_its_line(write: Any, agent: Path, reference: str, line: str) -> None:
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync(write(f"agents: {{include: ['{reference}']}}\n"), strict=True)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Review.", "agents/reviewer.md:1:1: error[AMP201]"),
        (
            "---\nmeta: {nam: x}\n---\n",
            "agents/reviewer.md:2:8: error[AMP102] meta.nam: unknown key; did you mean 'name'?",
        ),
        ("---\nmeta: {name: x}\ntools: [{modul: x}]\n---\n", "agents/reviewer.md:3:10: error[AMP102]"),
        ("---\nmeta: {name: x}\nagents: some\n---\n", "agents/reviewer.md:3:9: error[AMP10"),
    ],
)
def test_a_broken_agent_is_told_with_its_own_line(write: Any, agent: Path, text: str, line: str) -> None:
    agent.write_text(text)
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync(write("agents: {include: [reviewer]}\n"))
    assert line in str(caught.value)


def test_a_mistyped_key_of_an_inline_agent_is_told_with_the_right_word(write: Any) -> None:
    bundle = load_bundle_sync(
        write("agents:\n  reader: {descriptoin: Reads, spawn: {max_dept: 1}}\n  writer: {hoks: []}\n")
    )
    assert [str(problem) for problem in bundle.problems] == [
        f"bundle.md:{spot}: unknown key; did you mean '{word}'? It is ignored"
        for spot, word in (
            ("4:12: warning[AMP102] agents.reader.descriptoin", "description"),
            ("4:40: warning[AMP102] agents.reader.spawn.max_dept", "max_depth"),
            ("5:12: warning[AMP102] agents.writer.hoks", "hooks"),
        )
    ]


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("{tools: 5}", "agents.reader.tools: must be a list, not a whole number"),
        ("{tools: [{module: tool-x, confg: {}}]}", "agents.reader.tools[0].confg: unknown key; did you mean 'config'?"),
        ("{instruction: [1]}", "agents.reader.instruction: must be text, not a list"),
        ("{session: {orchestrator: 5}}", "agents.reader.session.orchestrator: must be a module's name"),
        ("{agents: 5}", "agents.reader.agents: must be 'all' or 'none' or a list or a mapping, not a whole number"),
    ],
)
def test_an_inline_agent_that_cannot_be_made_is_refused_when_the_bundle_is_read(
    write: Any, agent: str, line: str
) -> None:
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync(write(f"agents: {{reader: {agent}}}\n"))
    assert line in str(caught.value)


def test_the_file_of_an_agent_is_checked_as_one(agent: Path) -> None:
    assert check_file(agent, load_plugins(environ={})) == []
    agent.write_text("---\nmeta: {descripton: x}\ntols: []\n---\n")
    assert [str(problem) for problem in check_file(agent, load_plugins(environ={}))] == [
        "agents/reviewer.md:2:8: error[AMP102] meta.descripton: unknown key; did you mean 'description'?",
        "agents/reviewer.md:3:1: warning[AMP106] tols: unknown section; did you mean 'tools'? It is ignored",
    ]
