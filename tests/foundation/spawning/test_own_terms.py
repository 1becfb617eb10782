"""A stored session of an agent, resumed or forked by a person: on its own terms, without the session above it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, UnknownName
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import converse, fork_stored, load_bundle
from amplifier_foundation.cli import exits
from amplifier_foundation.sessions.records import new_record
from amplifier_foundation.spawning.conversation import open_conversation

AGENTS = {
    "below": {
        "description": "b",
        "instruction": "Be kind.",
        "agents": {"deeper": {"instruction": "Be brief.", "spawn": {"exclude_tools": ["tool-probe"]}}},
    }
}


def spawner(session: AmplifierSession) -> Any:
    return session.coordinator.get_capability("session.spawn")


@pytest.fixture
async def made(lead: Any, words: Any, store: DurableStore) -> Any:
    """Make a session of an agent of `lead` by given terms; return the lead's bundle and the agent's answer."""

    async def make(agent: str = "below", **terms: Any) -> tuple[Any, dict[str, Any]]:
        tools = [{"module": "tool-filesystem"}, words.entry("tool-probe", token="sesame"), {"module": "tool-delegate"}]
        session = await lead(agents=AGENTS, tools=tools, instruction="Lead them.")
        prepared = spawner(session).__self__.prepared
        await store.create(new_record(prepared, "lead", status="idle"))
        return prepared.bundle, await spawner(session)(agent, "one", **terms)

    return make


TERMS: dict[str, Any] = {
    "tool_inheritance": {"exclude_tools": ["tool-filesystem", "tool-delegate"]},
    "provider_preferences": [{"provider": "echo", "model": "small-*", "config": {"effort": "low"}}],
    "self_delegation_depth": 1,
}


@pytest.mark.parametrize("is_fork", [False, True])
async def test_an_agents_session_keeps_its_instruction_tools_and_model(
    made: Any, store: DurableStore, plugins: Plugins, is_fork: bool
) -> None:
    bundle, first = await made(**TERMS)
    assert first["output"] == "system:Be kind.|user:one [probe]small-2"
    record = await store.get(first["session_id"])
    if is_fork:
        record = await fork_stored(store, record, plugins=plugins)
    seen: list[AmplifierSession] = []
    turn = await converse(bundle, "two", store, plugins, resume=record, observe=seen.append)
    assert turn.output == f"system:Be kind.|user:one|assistant:{first['output']}|user:two [probe]small-2"
    [session] = seen
    assert session.coordinator.get_capability("self_delegation_depth") == 1
    assert session.coordinator.get_capability("session.depth") == 1
    assert session.config["providers"][0]["config"]["effort"] == "low"
    assert [entry["config"] for entry in session.config["tools"]] == [{"token": "sesame"}], "no record holds it"
    kept = await store.get(record.session_id)
    assert (kept.bundle, kept.metadata["agent"], kept.turn_count) == ("below", "below", 2)


async def test_a_fork_of_a_fork_of_an_agents_session_is_that_agents(
    made: Any, store: DurableStore, plugins: Plugins
) -> None:
    bundle, first = await made(tool_inheritance={"inherit_tools": ["tool-probe"]})
    fork = await fork_stored(store, await store.get(first["session_id"]), plugins=plugins)
    fork = await fork_stored(store, fork, plugins=plugins)
    await store.delete(first["session_id"])
    assert (await converse(bundle, "two", store, plugins, resume=fork)).output.startswith("system:Be kind.|user:one")


async def test_deeper_agents_are_found_through_those_above(
    lead: Any, words: Any, store: DurableStore, plugins: Plugins
) -> None:
    tools = [words.entry("tool-probe"), {"module": "tool-delegate", "config": {}}]
    session = await lead(agents=AGENTS, tools=tools, instruction="Lead them.")
    agents = spawner(session).__self__
    middle = await agents.spawn("below", "one")
    found: list[AmplifierSession] = []
    bundle = agents.prepared.bundle
    record = await store.get(middle["session_id"])
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        deeper = await spawner(conversation.session)("deeper", "go")
        assert deeper["output"] == "system:Be brief.|user:go [delegate,probe]"
    again = await converse(
        bundle, "on", store, plugins, resume=await store.get(deeper["session_id"]), observe=found.append
    )
    assert again.output.endswith("user:on [delegate,probe]")
    assert again.output.startswith("system:Be brief.|")
    assert found[0].coordinator.get_capability("session.depth") == 2


async def test_an_agent_that_the_bundle_has_no_longer_is_refused(
    made: Any, store: DurableStore, plugins: Plugins
) -> None:
    bundle, first = await made()
    bundle.agents.clear()
    with pytest.raises(UnknownName, match="unknown agent 'below'"):
        await converse(bundle, "two", store, plugins, resume=await store.get(first["session_id"]))


async def test_an_agent_with_a_bundle_of_its_own_goes_on_with_that(
    lead: Any, store: DurableStore, plugins: Plugins, tmp_path: Path, words: Any
) -> None:
    (tmp_path / "kind.md").write_text("---\nbundle: {name: kind}\n---\nBe kind.\n")
    session = await lead(tools=[words.entry("tool-probe")], instruction="Lead them.")
    first = await spawner(session)(str(tmp_path / "kind.md"), "one")
    record = await store.get(first["session_id"])
    turn = await converse(await load_bundle(record.bundle_source), "two", store, plugins, resume=record)
    assert turn.output == f"system:Be kind.|user:one|assistant:{first['output']}|user:two [probe]"


async def test_with_another_bundle_a_session_is_that_bundles(
    made: Any, store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    _, first = await made()
    path = tmp_path / "other.md"
    path.write_text("---\nbundle: {name: other}\n---\nBe strict.\n")
    turn = await converse(
        await load_bundle(str(path)), "two", store, plugins, resume=await store.get(first["session_id"])
    )
    assert turn.output.startswith("system:Be strict.|")


BUNDLE = """---
bundle: {name: lead}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: .}, call: {tool: delegate, input: {agent: helper, instruction: one}}}
        - {when: {tool: delegate}, say: done}
tools:
  - {module: tool-filesystem}
  - {module: tool-delegate, config: {exclude_tools: [tool-delegate]}}
agents:
  helper:
    instruction: Help.
    providers: [{module: provider-echo, source: ./provider-echo.py}]
---
Lead.
"""


@pytest.mark.usefixtures("words")
def test_run_and_session_resume_an_agents_session_as_that_agent(amplifier: Any, tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    assert amplifier("run", "go", cwd=tmp_path).returncode == exits.OK
    listed = json.loads(amplifier("session", "list", "--json", cwd=tmp_path).stdout)["data"]
    child = next(each["session_id"] for each in listed if each["parent_id"])
    for command in (("run", "--resume", child), ("session", "resume", child), ("run", "--fork", child)):
        ran = amplifier(*command, "more", "--json", cwd=tmp_path)
        assert ran.returncode == exits.OK, ran.stderr
        output = json.loads(ran.stdout)["data"]["output"]
        assert output.startswith("system:Help.|user:one|")
        tools = output.rpartition("[")[2].rstrip("]").split(",")
        assert "delegate" not in tools
        assert "read_file" in tools
