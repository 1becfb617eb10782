"""Test the choice of agents: those of the session, the session itself, and bundles inside the folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_tool_delegate.agents import SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Program


@pytest.fixture
def bundles(work: Path, tmp_path: Path) -> Path:
    """A working folder with bundles in it, one outside, and ways that lead there."""
    (work / "team").mkdir()
    (work / "team" / "bundle.md").write_text("in a folder")
    (work / "solo.yaml").write_text("alone")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "bundle.md").write_text("outside")
    (work / "link.md").symlink_to(tmp_path / "outside" / "bundle.md")
    (work / "folder").symlink_to(tmp_path / "outside")
    return work


def listed(tool: Any) -> list[str]:
    lines: list[str] = tool.description.partition("\nAgents:\n")[2].splitlines()
    return lines


async def test_the_description_lists_the_agents_there_are_now(program: Program) -> None:
    tool = await program.tool()
    assert listed(tool) == [
        "- reviewer: Reads one file and says what is wrong with it.",
        "- lib:bug-hunter: Finds what is broken.",
        "- self: An agent like you, with a fresh memory.",
    ]
    program.coordinator.config["agents"] = {"writer": {}, "broken": "no mapping"}
    assert listed(tool) == ["- writer", "- self: An agent like you, with a fresh memory."]


async def test_a_session_without_agents_says_so(program: Program) -> None:
    program.coordinator.config.clear()
    assert listed(await program.tool(max_self_depth=0)) == ["- none"]


@pytest.mark.parametrize("count", [10, 70, 500])
async def test_the_list_of_agents_is_bounded(program: Program, count: int) -> None:
    agents = {f"agent-{number}": {"description": "long " * 200} for number in range(count)}
    program.coordinator.config["agents"] = agents
    lines = listed(await program.tool(max_self_depth=0))
    assert SIZE * 0.7 < len("\n".join(lines)) <= SIZE
    left_out = count - len([line for line in lines if line.startswith("- agent-")])
    assert lines[-1] == f"- and {left_out} more" if left_out else lines[-1].startswith("- agent-9: long")


async def test_an_unknown_agent_is_answered_with_the_nearest_and_with_all(program: Program) -> None:
    assert await program.failure(agent="reviwer") == (
        "UnknownAgent",
        "unknown agent 'reviwer'; did you mean 'reviewer'? Known are: reviewer, lib:bug-hunter, self",
    )
    assert (program.asked, program.events) == ([], [])


async def test_only_the_agents_of_the_list_may_be_asked(program: Program, bundles: Path) -> None:
    config = {"agents": ["reviewer", "gone", "./solo.yaml"]}
    assert listed(await program.tool(**config)) == [
        "- reviewer: Reads one file and says what is wrong with it.",
        "- ./solo.yaml",
    ]
    for agent in ("reviewer", "./solo.yaml"):
        assert (await program.call(config, agent=agent)).success
    for agent in ("gone", "lib:bug-hunter", "self", "./team"):
        kind, message = await program.failure(config, agent=agent)
        assert kind == "UnknownAgent"
        assert message.endswith("Known are: reviewer, ./solo.yaml")
    assert [asked["agent_name"] for asked in program.asked] == ["reviewer", "./solo.yaml"]


async def test_nobody_may_be_asked_where_the_list_is_none(program: Program) -> None:
    assert listed(await program.tool(agents="none")) == ["- none"]
    kind, _ = await program.failure({"agents": "none"}, agent="reviewer")
    assert kind == "UnknownAgent"


async def test_self_may_be_asked_so_often_and_no_more(program: Program) -> None:
    for depth in (None, 1, 2):
        program.coordinator.register_capability("self_delegation_depth", depth)
        assert (await program.call(agent="self")).success
    program.coordinator.register_capability("self_delegation_depth", 3)
    kind, message = await program.failure(agent="self")
    assert (kind, "max_self_depth is 3; do the task here" in message) == ("TooDeep", True)
    await program.call(agent="reviewer")
    assert [asked["self_delegation_depth"] for asked in program.asked] == [1, 2, 3, 3]


async def test_self_is_nobody_where_it_may_not_be_asked(program: Program) -> None:
    for config in ({"max_self_depth": 0}, {"features": {"self_delegation": {"enabled": False}}}):
        kind, message = await program.failure(config, agent="self")
        assert (kind, message.endswith("Known are: reviewer, lib:bug-hunter")) == ("UnknownAgent", True)


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("team", None),
        ("./team", "team/bundle.md"),
        ("team/", "team/bundle.md"),
        ("team/bundle", "team/bundle.md"),
        ("solo.yaml", "solo.yaml"),
        ("./solo", "solo.yaml"),
        ("{work}/solo.yaml", "solo.yaml"),
        ("file://{work}/solo.yaml", "solo.yaml"),
        ("FILE://localhost{work}/so%6Co", "solo.yaml"),
        ("team/../solo", "solo.yaml"),
    ],
)
async def test_a_bundle_runs_by_the_path_of_its_file(
    program: Program, bundles: Path, named: str, file: str | None
) -> None:
    result = await program.call(agent=named.format(work=bundles))
    if file is None:  # a plain word is the name of an agent
        assert (result.success, program.asked) == (False, [])
    else:
        assert [asked["agent_name"] for asked in program.asked] == [str(bundles / file)]
        assert result.output["agent"] == named.format(work=bundles)


async def test_a_bundle_is_looked_for_in_the_folder_of_the_sessions_bundle_too(
    program: Program, bundles: Path, tmp_path: Path
) -> None:
    class Resolver:
        base_path = tmp_path / "outside"

    program.coordinator.register_capability("mention_resolver", Resolver())
    assert (await program.call(agent="./bundle.md")).success
    assert program.asked[0]["agent_name"] == str(tmp_path / "outside" / "bundle.md")


@pytest.mark.parametrize(
    "named",
    [
        "../outside",
        "../outside/bundle.md",
        "{outside}/bundle.md",
        "link.md",
        "folder/",
        "folder/bundle.md",
        "team/../../outside",
        "file://{outside}/bundle.md",
        "file:///../outside",
        "file://elsewhere/bundle.md",
        "file:bundle.md",
        "~/bundle.md",
        "~nobody-of-this-name/bundle.md",
        "lib:../bundle.md",
        "lib:a/../../b",
        "lib:a\\..\\b",
        "lib:/etc/bundle.md",
        "lib:a\0b",
        "a/\0",
        "a/" + "b" * 5_000,
        "https://example.org/bundle.md",
        "git+https://example.org/a",
        "git+ssh:a@example.org",
        "zip+file:///a.zip",
    ],
)
async def test_no_bundle_from_elsewhere_runs(program: Program, bundles: Path, tmp_path: Path, named: str) -> None:
    kind, message = await program.failure(agent=named.format(outside=tmp_path / "outside"))
    assert (kind, " may not run here: " in message) == ("BundleRefused", True)
    assert len(message) < 3_000
    assert program.asked == []


@pytest.mark.parametrize("named", ["./gone", "team/gone.md", "a\\b", "{work}/gone"])
async def test_a_bundle_that_is_not_there_is_an_unknown_agent(program: Program, bundles: Path, named: str) -> None:
    kind, message = await program.failure(agent=named.format(work=bundles))
    assert (kind, message.startswith("there is no bundle at '")) == ("UnknownAgent", True)


@pytest.mark.parametrize("named", ["lib:agents/a", "lib:", "lib:a..b"])
async def test_registered_bundles_are_the_programs_to_find(program: Program, named: str) -> None:
    assert (await program.call(agent=named)).success
    assert program.asked[0]["agent_name"] == named


async def test_bundles_from_elsewhere_run_where_that_is_allowed(program: Program) -> None:
    url = "git+https://example.org/a@main"
    assert (await program.call({"uris": True}, agent=url)).success
    assert program.asked[0]["agent_name"] == url


async def test_no_bundle_runs_where_bundles_are_off(program: Program, bundles: Path) -> None:
    for agent in ("./solo", "lib:a", "https://example.org/bundle.md"):
        kind, message = await program.failure({"bundles": False}, agent=agent)
        assert (kind, "(bundles are off here)" in message) == ("UnknownAgent", True)
    assert (await program.call({"bundles": False}, agent="lib:bug-hunter")).success
