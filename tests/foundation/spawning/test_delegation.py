"""The tool `delegate` and what really makes the sessions that it asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.storage import DurableStore
from amplifier_foundation import PreparedBundle, spawn_bundle
from amplifier_foundation.sessions.usage import children_usage

MakeBundle = Callable[..., PreparedBundle]

KIND = "---\nbundle: {name: kind}\n---\nBe kind.\n"


async def delegate(session: AmplifierSession, **given: Any) -> Any:
    return await session.coordinator.get("tools", "delegate").execute({"instruction": "go", **given})


async def answer(session: AmplifierSession, **given: Any) -> str:
    """Return what an agent answered, which is what its model was told."""
    result = await delegate(session, **given)
    assert result.success, result.error
    response: str = result.output["response"]
    return response.partition(" [")[0]


@pytest.fixture
def repository(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a git repository with a bundle."""
    git = shutil.which("git") or ""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "bundle.md").write_text(KIND)
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run([git, *arguments], cwd=folder, check=True, capture_output=True)
    return f"git+file://{folder}"


async def test_agents_by_name_self_path_and_repository_answer_in_one_turn(
    lead: Any, repository: str, words: Any, store: DurableStore, tmp_path: Path
) -> None:
    (tmp_path / "kind.md").write_text(KIND)
    names = ["below", "self", "./kind.md", repository]
    calls = [{"tool": "delegate", "input": {"agent": name, "instruction": "look"}} for name in names]
    asks = words.playbook({"when": {"user": "all"}, "call": calls}, {"when": {"tool": "delegate"}, "say": "{result}"})
    session = await lead({"uris": True}, providers=asks, agents={"below": {"instruction": "Review."}})
    said = json.loads(await session.execute("all of them"))
    assert (said["status"], said["agent"], said["response"]) == ("completed", repository, "You said: look")
    records = await store.sessions()
    assert sorted(record.metadata["agent"] for record in records) == sorted(
        ["below", "self", repository, str(tmp_path / "kind.md")]
    )
    assert {(record.parent_id, record.status, record.turn_count) for record in records} == {("lead", "completed", 1)}
    assert sorted(record.bundle for record in records) == ["below", "kind", "kind", "lead"]


async def test_an_agent_is_told_of_the_conversation_what_the_call_says(lead: Any, words: Any) -> None:
    session = await lead(agents={"below": {}})
    session.transcript.extend(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "d", "tool": "delegate", "arguments": {}}]},
            {"role": "tool", "tool_call_id": "d", "content": "answered"},
            {"role": "assistant", "content": "first"},
            {"role": "user", "content": "two"},
        ]
    )
    said = "user:one|assistant:first|user:two|user:go"
    assert await answer(session, agent="below") == "user:go"
    assert await answer(session, agent="below", context_depth="all") == said
    recent = await answer(session, agent="below", context_depth="recent", context_turns=1)
    assert recent == "user:two|user:go"
    for scope in ("agents", "full"):
        told = await answer(session, agent="below", context_depth="all", context_scope=scope)
        assert told == "user:one|assistant:|tool:answered|assistant:first|user:two|user:go"


async def test_a_session_that_is_gone_on_with_keeps_its_terms(lead: Any) -> None:
    session = await lead({"exclude_tools": ["tool-filesystem"]}, agents={"below": {}})
    wanted = [{"provider": "echo", "model": "small-*"}]
    first = (await delegate(session, agent="below", provider_preferences=wanted)).output
    assert first["response"] == "user:go [delegate]small-2"
    again = (await delegate(session, session_id=first["session_id"], instruction="on")).output
    assert again["response"] == f"user:go|assistant:{first['response']}|user:on [delegate]small-2"
    assert (again["agent"], again["turn_count"]) == ("below", 2)


async def test_a_session_of_somebody_else_is_refused(
    lead: Any, make_bundle: MakeBundle, parent: AmplifierSession, store: DurableStore
) -> None:
    session = await lead(agents={"below": {}})
    await spawn_bundle(make_bundle(), "hello", parent, session_id="theirs", session_storage=store)
    result = await delegate(session, session_id="theirs")
    assert not result.success
    assert "was not made by this one" in str(result.error)


async def test_what_agents_cost_is_the_parents_cost_down_to_the_last(lead: Any, words: Any) -> None:
    inner = {"providers": [words.entry("provider-echo")]}
    asks = words.calls("delegate", agent="inner", instruction="look")
    outer = {"providers": asks, "tools": [{"module": "tool-delegate"}], "agents": ["inner"]}
    session = await lead(agents={"inner": inner, "outer": outer})
    result = await delegate(session, agent="outer")
    assert json.loads(result.output["response"])["response"].startswith("user:look")
    assert children_usage(session.coordinator).cost_usd == Decimal("0.01")
    await delegate(session, agent="inner")
    said = await session.coordinator.collect_contributions("session.cost")
    [children] = [each for each in said if "children" in each]
    assert (children["children"], children["cost_usd"]) == (2, "0.02")


async def test_an_agent_that_fails_is_a_result_and_its_session_can_be_gone_on_with(
    lead: Any, words: Any, store: DurableStore
) -> None:
    session = await lead(agents={"broken": {"providers": [words.entry("provider-faulty")]}})
    result = await delegate(session, agent="broken")
    assert not result.success
    assert "broken provider" in str(result.error)
    session_id = (result.error or {})["session_id"]
    assert (await store.get(session_id)).status == "failed"
    (again,) = [await delegate(session, session_id=session_id, instruction="again")]
    assert "broken provider" in str(again.error)
    assert [message["content"] for message in await store.read(session_id)] == ["go", "again"]


async def test_an_agent_that_is_none_or_may_not_be_fetched_is_a_result(lead: Any, repository: str) -> None:
    session = await lead(agents={"below": {}})
    unknown = await delegate(session, agent="bellow")
    assert "did you mean 'below'" in str(unknown.error)
    fetched = await delegate(session, agent=repository)
    assert not fetched.success


async def test_self_may_be_delegated_to_as_often_as_the_tool_says(lead: Any, words: Any, store: DurableStore) -> None:
    asks = words.calls("delegate", agent="self", instruction="go on")
    session = await lead({"max_self_depth": 2}, providers=asks)
    said = await session.execute("begin")
    for _ in range(2):
        said = json.loads(said)["response"]
    assert "max_self_depth" in said
    assert len(await store.sessions()) == 2
