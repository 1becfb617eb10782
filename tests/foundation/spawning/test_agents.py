"""Agents by name: which one is meant, what it takes over, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SessionConflict, SessionNotFound, UnknownName
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_foundation import PreparedBundle, spawn_bundle
from amplifier_foundation.spawning.family import Family

MakeBundle = Callable[..., PreparedBundle]


def spawner(session: AmplifierSession) -> Any:
    return session.coordinator.get_capability("session.spawn")


def resumer(session: AmplifierSession) -> Any:
    return session.coordinator.get_capability("session.resume")


def tools_of(output: str) -> list[str]:
    """Return the tools that the provider `echo` was told of."""
    return [name for name in output.partition("[")[2].partition("]")[0].split(",") if name]


# test_agent_resolution_app_layer


async def test_an_agent_is_one_of_the_bundles_or_of_those_that_are_given(lead: Any, words: Any) -> None:
    session = await lead(agents={"reviewer": {"instruction": "Review."}})
    assert (await spawner(session)("reviewer", "go"))["output"].startswith("system:Review.|user:go")
    given = {"planner": {"instruction": "Plan.", "providers": words.playbook(say="planned")}}
    assert (await spawner(session)("planner", "go", agent_configs=given))["output"] == "planned"


async def test_an_agent_that_is_none_is_refused_with_the_names_there_are(lead: Any, store: DurableStore) -> None:
    session = await lead(agents={"reviewer": {}, "planner": {}})
    with pytest.raises(UnknownName, match="did you mean 'reviewer'") as caught:
        await spawner(session)("reviever", "go")
    assert caught.value.known == ("planner", "reviewer", "self")
    assert await store.sessions() == []


async def test_an_agent_may_ask_those_that_its_own_section_names(lead: Any) -> None:
    agents: dict[str, Any] = {"any": {"agents": "all"}, "some": {"agents": ["none", "gone"]}, "none": {}}
    session = await lead(agents=agents)
    children: list[AmplifierSession] = []
    Family.of(session).tree.observers = [children.append]
    for name in agents:
        await spawner(session)(name, "go")
    known = [set(child.config.get("agents") or ()) for child in children]
    assert known == [{"any", "some", "none"}, {"none"}, set()]


# test_self_delegation_handling


async def test_self_is_the_sessions_own_bundle_with_a_memory_of_its_own(lead: Any, store: DurableStore) -> None:
    session = await lead(instruction="Be kind.")
    await session.execute("before")
    result = await spawner(session)("self", "go", self_delegation_depth=2)
    assert result["output"].startswith("system:Be kind.|user:go [")
    record = await store.get(result["session_id"])
    assert (record.parent_id, record.name, record.metadata["agent"]) == ("lead", "lead", "self")
    assert record.metadata["terms"] == {"self_delegation_depth": 2}


async def test_a_session_that_was_made_for_a_call_goes_on_when_the_call_runs_again(
    lead: Any, store: DurableStore
) -> None:
    session = await lead()
    await session.execute("before")
    asked = {"context_depth": "all", "context_scope": "full", "sub_session_id": "fork-1", "again": True}
    first = await spawner(session)("self", "go", **asked)
    again = await spawner(session)("self", "go", **asked)
    assert (again["session_id"], again["output"], again["turn_count"]) == ("fork-1", first["output"], 1)
    assert (await store.get("fork-1")).message_count == 4
    asked["sub_session_id"] = "fork-2"
    assert (await spawner(session)("self", "go", **asked))["session_id"] == "fork-2"


async def test_a_session_notes_facts_of_those_that_it_made(lead: Any, store: DurableStore) -> None:
    session = await lead()
    made = await spawner(session)("self", "go", session_metadata={"attempt": {"number": 1}})
    children, annotate = map(session.coordinator.get_capability, ("session.children", "session.annotate"))
    await annotate(made["session_id"], "decision", "kept")
    await annotate(made["session_id"], "by", 2)
    [child] = await children()
    assert (child["session_id"], child["status"]) == (made["session_id"], "completed")
    assert child["metadata"]["notes"] == {"decision": "kept", "by": 2}
    assert child["metadata"]["attempt"] == {"number": 1}
    await store.create(SessionRecord("stranger"))
    for stranger, error in (("stranger", SessionConflict), ("nobody", SessionNotFound)):
        with pytest.raises(error):
            await annotate(stranger, "decision", "kept")


# test_tool_filtering_policy


@pytest.mark.parametrize(
    ("section", "asked", "tools"),
    [
        ({}, None, None),
        ({}, {"exclude_tools": ["tool-filesystem"]}, ["delegate", "probe"]),
        ({}, {"inherit_tools": ["tool-probe"]}, ["probe"]),
        ({}, {"inherit_tools": []}, []),
        ({"exclude_tools": ["tool-delegate"]}, {"exclude_tools": ["tool-filesystem"]}, ["probe"]),
        ({"tools": ["tool-probe"]}, None, ["probe"]),
        ({"tools": [{"module": "tool-probe"}]}, None, ["probe"]),
        ({"inherit_tools": ["tool-probe"]}, {"inherit_tools": ["tool-delegate"]}, ["delegate"]),
    ],
)
async def test_an_agent_takes_over_the_tools_that_are_not_filtered_out(
    section: dict[str, Any], asked: dict[str, list[str]] | None, tools: list[str] | None, lead: Any, words: Any
) -> None:
    mounted = [{"module": name} for name in ("tool-filesystem", "tool-delegate")]
    session = await lead(tools=[*mounted, words.entry("tool-probe")], agents={"below": {}}, spawn=section)
    result = await spawner(session)("below", "go", tool_inheritance=asked)
    assert tools_of(result["output"]) == (sorted(session.coordinator.get("tools")) if tools is None else tools)


async def test_hooks_are_filtered_by_the_same_rules(lead: Any, words: Any) -> None:
    agents = {"below": {"providers": words.calls("probe"), "tools": [words.entry("tool-probe", mark="ran")]}}
    session = await lead(hooks=[words.entry("hooks-asking")], agents=agents)
    assert "Denied by hook" in (await spawner(session)("below", "go"))["output"]
    free = await spawner(session)("below", "go", hook_inheritance={"exclude_hooks": ["hooks-asking"]})
    assert free["output"].endswith("ran")


async def test_an_agents_own_modules_come_over_those_it_takes_over(lead: Any, words: Any) -> None:
    agents = {
        "below": {
            "session": {"orchestrator": {"module": "loop-basic", "config": {"max_iterations": 1}}},
            "tools": [{"module": "tool-probe", "config": {"mark": "own"}}],
            "providers": words.calls("shown"),
        }
    }
    session = await lead(tools=[words.entry("tool-probe", name="shown", mark="lead")], agents=agents)
    capped = await spawner(session)("below", "go")
    assert capped["output"].startswith("Stopped after 1 model calls")
    result = await spawner(session)("below", "go", orchestrator_config={"max_iterations": 2})
    assert result["output"].endswith(" own")


# test_provider_preferences_applied


@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ([{"provider": "echo", "model": "small-1"}], "small-1"),
        ([{"provider": "echo", "model": "small-*"}], "small-2"),
        ([{"provider": "nobody"}, {"provider": "provider-echo", "model": "large-?"}], "large-1"),
        ([{"provider": "echo", "model": "huge-*"}], ""),
    ],
)
async def test_the_first_preference_that_is_there_is_the_provider_and_model(
    wanted: list[dict[str, str]], model: str, lead: Any, words: Any
) -> None:
    session = await lead(tools=[], providers=[words.entry("provider-echo")], agents={"below": {}})
    result = await spawner(session)("below", "go", provider_preferences=wanted)
    assert result["output"] == f"user:go{model}"


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({"provider_override": "echo", "model_override": "large-1"}, "large-1"),
        ({"model_override": "small-*"}, "small-2"),
        ({"provider_override": "provider-echo"}, ""),
        ({"model_override": "large-1", "provider_preferences": [{"provider": "echo", "model": "small-1"}]}, "small-1"),
    ],
)
async def test_an_override_of_provider_or_model_is_a_preference(lead: Any, options: Any, model: str) -> None:
    session = await lead(agents={"below": {}}, tools=[])
    assert (await spawner(session)("below", "one", **options))["output"] == f"user:one{model}"


# going on


async def test_an_agent_goes_on_with_its_own_history_on_its_own_terms(lead: Any, store: DurableStore) -> None:
    session = await lead(agents={"below": {"instruction": "Be kind."}})
    terms: dict[str, Any] = {
        "tool_inheritance": {"exclude_tools": ["tool-filesystem"]},
        "provider_preferences": [{"provider": "echo", "model": "small-*"}],
        "self_delegation_depth": 1,
    }
    first = await spawner(session)("below", "one", **terms)
    again = await resumer(session)(first["session_id"], "two")
    assert first["output"] == "system:Be kind.|user:one [delegate]small-2"
    assert again["output"] == f"system:Be kind.|user:one|assistant:{first['output']}|user:two [delegate]small-2"
    assert (again["session_id"], again["turn_count"]) == (first["session_id"], 2)
    record = await store.get(first["session_id"])
    assert (record.turn_count, record.message_count) == (2, 4)
    assert record.metadata["usage"]["requests"] == 2
    assert json.loads(json.dumps(record.metadata["terms"])) == terms


async def test_a_session_of_somebody_else_is_not_gone_on_with(
    lead: Any, store: DurableStore, make_bundle: MakeBundle, parent: AmplifierSession
) -> None:
    session = await lead(agents={"below": {}})
    await spawn_bundle(make_bundle(), "hello", parent, session_id="theirs", session_storage=store)
    with pytest.raises(SessionConflict, match="'theirs' was not made by this one"):
        await resumer(session)("theirs", "go on")
    with pytest.raises(SessionNotFound):
        await resumer(session)("nobodys", "go on")
    assert (await store.get("theirs")).turn_count == 1


async def test_a_bundle_is_found_from_the_folder_of_the_bundle_that_names_it(lead: Any, tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/kind.md").write_text("---\nbundle: {name: kind}\n---\nBe kind.\n")
    session = await lead(tools=[])
    for agent in ("./helpers/kind.md", str(tmp_path / "helpers/kind.md")):
        result = await spawner(session)(agent, "go")
        assert result["output"] == "system:Be kind.|user:go"
        assert (await resumer(session)(result["session_id"], "on"))["turn_count"] == 2
