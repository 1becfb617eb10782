"""Run forks of real sessions in a real store, and see what comes of them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator, hookimpl, load_plugins
from amplifier_core.errors import ForkRefused
from amplifier_core.permissions import Policy, parse_permissions
from amplifier_core.permissions.calls import Call
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_foundation import load_bundle, open_inbox
from amplifier_foundation.spawning.conversation import converse
from amplifier_tool_fork import config_schema, mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from amplifier_core.hook_data import ForkRequest
    from amplifier_core.storage import DurableStore, SessionRecord
    from amplifier_foundation.spawning.conversation import Turn

    Say = Callable[..., Awaitable[Turn]]

BUNDLE = """---
bundle: {{name: lead}}
session: {{orchestrator: loop-basic, context: context-simple}}
spawn: {spawn}
providers:
  - module: provider-playbook
    config:
      delay_ms: {delay}
      rules:
        - when: {{user: '^remember (?P<word>.+)'}}
          say: "Noted."
        - when: {{user: '^try'}}
          call: {{tool: fork, input: {input}}}
        - when: {{user: 'say (?P<what>\\w+)$'}}
          say: "{{what}} {{word}}"
        - when: {{user: 'fail'}}
          say: "{{missing}}"
        - when: {{user: 'again'}}
          call: {{tool: fork, input: {{instruction: "say deeper"}}}}
        - when: {{tool: fork}}
          say: "{{result}}"
tools:
  - module: tool-fork
    config: {config}
---
"""


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DurableStore]:
    """A store on disk."""
    opened = open_inbox(load_plugins(environ={}), path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


class Refuses:
    """Refuses the forks of a name."""

    asked: list[str]

    def __init__(self, number: int) -> None:
        self.asked = []
        self.number = number

    @hookimpl
    async def amplifier_before_fork(self, request: ForkRequest) -> None:
        self.asked.append(request.source_id)
        if len(self.asked) == self.number:
            raise ForkRefused(request.source_id, "not this one")


@pytest.fixture
def say(tmp_path: Path, store: DurableStore) -> Say:
    """Say something to a new session, or go on with one."""

    async def run(
        prompt: str,
        given: Any = None,
        *,
        config: str = "{}",
        spawn: str = "{}",
        delay: int = 0,
        resume: SessionRecord | None = None,
        plugin: object = None,
    ) -> Turn:
        (tmp_path / "work").mkdir(exist_ok=True)
        path = tmp_path / "bundle.md"
        path.write_text(BUNDLE.format(input=json.dumps(given or {}), config=config, spawn=spawn, delay=delay))
        plugins = load_plugins(environ={})
        if plugin is not None:
            plugins.register(plugin)
        bundle = await load_bundle(str(path))
        return await converse(bundle, prompt, store, plugins, resume=resume, working_dir=tmp_path / "work")

    return run


async def _try(say: Say, store: DurableStore, given: Any, **options: Any) -> tuple[SessionRecord, dict[str, Any]]:
    """Return the session that tried, and the result of its call."""
    first = await say("remember it", given)
    turn = await say("try", given, resume=await store.get(first.session_id), **options)
    record = await store.get(turn.session_id)
    result = json.loads((await store.read(turn.session_id))[-2]["content"])
    return record, result


async def test_forks_know_the_conversation_and_answer_side_by_side(say: Say, store: DurableStore) -> None:
    lead, result = await _try(say, store, {"attempts": ["say a", "say b", "say c"]})
    attempts = result["attempts"]
    assert [(each["attempt"], each["status"], each["answer"]) for each in attempts] == [
        (1, "completed", "a it"),
        (2, "completed", "b it"),
        (3, "completed", "c it"),
    ]
    for each in attempts:
        fork = await store.get(each["session_id"])
        assert (fork.parent_id, fork.fork_of, fork.fork_at) == (lead.session_id, lead.session_id, 3)
        assert (fork.metadata["attempt"]["number"], fork.project) == (each["attempt"], lead.project)
        texts = [message["content"] for message in await store.read(fork.session_id)]
        assert texts[2:4] == [
            "try",
            f"You work in fork {each['attempt']} of 3 of this session. say {'abc'[each['attempt'] - 1]}",
        ]
    assert "You work in fork" not in json.dumps(await store.read(lead.session_id))


async def test_one_instruction_runs_in_n_forks(say: Say, store: DurableStore) -> None:
    _, result = await _try(say, store, {"instruction": "say a", "n": 3}, config="{max_parallel: 1}")
    assert [each["answer"] for each in result["attempts"]] == ["a it"] * 3
    assert len({each["session_id"] for each in result["attempts"]}) == 3


async def test_a_fork_that_fails_costs_itself_alone(say: Say, store: DurableStore) -> None:
    _, result = await _try(say, store, {"attempts": ["fail", "say b"]})
    failed, good = result["attempts"]
    assert (failed["status"], good["answer"]) == ("failed", "b it")
    assert "missing" in failed["error"]
    assert (await store.get(failed["session_id"])).status == "failed"


async def test_a_call_fails_when_no_fork_has_an_answer(say: Say, store: DurableStore) -> None:
    _, result = await _try(say, store, {"instruction": "fail", "n": 2})
    assert result["error"].startswith("no fork has an answer: ")
    assert [each["status"] for each in result["attempts"]] == ["failed", "failed"]


async def test_every_fork_asks_the_plugins_and_the_limits(say: Say, store: DurableStore) -> None:
    plugin = Refuses(2)
    lead, result = await _try(say, store, {"instruction": "say a", "n": 3}, config="{max_parallel: 1}", plugin=plugin)
    assert plugin.asked == [lead.session_id] * 3
    assert [each["status"] for each in result["attempts"]] == ["completed", "refused", "completed"]
    assert "not this one" in result["attempts"][1]["error"]
    _, result = await _try(say, store, {"instruction": "say a", "n": 3}, spawn="{max_sessions: 1}")
    assert sorted(each["status"] for each in result["attempts"]) == ["completed", "refused", "refused"]


async def test_a_fork_makes_no_forks_unless_it_may(say: Say, store: DurableStore) -> None:
    _, result = await _try(say, store, {"instruction": "again"})
    assert "this session is a fork itself, and max_depth is 1" in result["attempts"][0]["answer"]
    _, result = await _try(say, store, {"instruction": "again"}, config="{max_depth: 2}")
    assert '"answer": "deeper it"' in result["attempts"][0]["answer"]


async def test_a_choice_is_noted_in_the_forks_of_its_call(say: Say, store: DurableStore) -> None:
    lead, result = await _try(say, store, {"instruction": "say a", "n": 3})
    _, other = await _try(say, store, {"instruction": "say a"})
    first, second, third = (each["session_id"] for each in result["attempts"])
    for keep in (first, second):
        await say("try", {"keep": keep}, resume=lead)
        said = json.loads((await store.read(lead.session_id))[-2]["content"])
        assert (said["kept"], set(said["dropped"])) == (keep, {first, second, third} - {keep})
        lead = await store.get(lead.session_id)
    decided = {each: (await store.get(each)).metadata["notes"]["decision"] for each in (first, second, third)}
    assert decided == {first: "dropped", second: "kept", third: "dropped"}
    for stranger in (other["attempts"][0]["session_id"], lead.session_id, "nobody"):
        await say("try", {"keep": stranger}, resume=lead)
        assert "is no fork that this session made" in json.dumps(await store.read(lead.session_id))
        lead = await store.get(lead.session_id)


async def test_a_cancelled_call_cancels_its_forks(say: Say, store: DurableStore) -> None:
    first = await say("remember it")
    given = {"instruction": "say a", "n": 3}
    trying = asyncio.create_task(say("try", given, resume=await store.get(first.session_id), delay=100))
    while len(forks := await store.sessions(parent_id=first.session_id)) < 3:
        await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert {(await store.get(each.session_id)).status for each in forks} == {"cancelled"}


async def test_a_killed_call_is_told_its_forks_and_begins_none_anew(
    say: Say, store: DurableStore, tmp_path: Path
) -> None:
    lead, result = await _try(say, store, {"attempts": ["say a", "say b"]})
    first, second = (each["session_id"] for each in result["attempts"])
    messages = await store.read(lead.session_id)
    cut = next(at for at, message in enumerate(messages) if message["role"] == "tool")
    source = {"fork_of": lead.session_id, "fork_at": cut, "message_count": cut, "parent_id": None}
    killed = await store.create(replace(lead, session_id="killed", status="interrupted", **source))
    for name, status in ((first, "completed"), (second, "running")):
        record = await store.get(name)
        shared = {"fork_of": name, "fork_at": record.message_count, "parent_id": "killed"}
        await store.create(replace(record, session_id=f"of-killed-{name}", status=status, **shared))
    turn = await say("remember more", resume=killed)
    [told] = [json.loads(each["content"]) for each in await store.read(turn.session_id) if each["role"] == "tool"]
    assert told["interrupted"] is True
    assert [(each["session_id"], each["status"]) for each in told["forks"]] == [
        (f"of-killed-{first}", "completed"),
        (f"of-killed-{second}", "interrupted"),
    ]
    assert told["forks"][0]["response"] == "a it"
    assert len(await store.sessions(parent_id="killed")) == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "the input must be an object, not list"),
        ({}, "give either 'attempts', or an 'instruction' and perhaps 'n'"),
        ({"attempts": ["a"], "instruction": "b"}, "give either"),
        ({"attempts": ["a"], "n": 2}, "give either"),
        ({"instruktion": "a"}, "unknown field 'instruktion'; known are attempts, instruction, n, keep"),
        ({"instruction": "a", "n": 0}, "'n' must be a number from 1 to 8, not 0"),
        ({"instruction": "a", "n": 9}, "'n' must be a number from 1 to 8, not 9"),
        ({"instruction": "a", "n": True}, "'n' must be a number from 1 to 8, not True"),
        ({"instruction": "a", "n": "3"}, "'n' must be a number from 1 to 8, not '3'"),
        ({"attempts": "a"}, "an instruction must be a text that is not empty"),
        ({"attempts": ["a", " "]}, "an instruction must be a text that is not empty"),
        ({"attempts": [{"instruction": "a"}]}, "an instruction must be a text that is not empty"),
        ({"attempts": ["a"] * 9}, "at most 8 attempts in one call, not 9"),
        ({"instruction": "a" * 20_001}, "an instruction has at most 20,000 characters"),
        ({"keep": "a", "n": 2}, "'keep' stands alone"),
        ({"keep": ["a"]}, "'keep' stands alone"),
    ],
)
async def test_a_bad_call_says_why(given: Any, why: str) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    await mount(coordinator)
    result = await coordinator.get("tools", "fork").execute(given)
    assert result.error is not None
    assert result.error["type"] == "InvalidInput"
    assert why in result.error["message"]


async def test_a_program_that_cannot_fork_is_named() -> None:
    coordinator = ModuleCoordinator(session_id="s")
    await mount(coordinator)
    tool = coordinator.get("tools", "fork")

    async def spawn(agent_name: str, instruction: str) -> None: ...

    for given, why in (({"instruction": "a"}, "cannot fork"), ({"keep": "a"}, "keeps no notes about forks")):
        result = await tool.execute(given)
        assert (result.error["type"], why in result.error["message"]) == ("Unavailable", True)
    coordinator.register_capability("session.spawn", spawn)
    assert (await tool.execute({"instruction": "a"})).error["type"] == "Unavailable"


async def test_rules_name_the_forks(tmp_path: Path) -> None:
    coordinator = ModuleCoordinator(session_id="s")
    await mount(coordinator)
    tool = coordinator.get("tools", "fork")
    policy = Policy([parse_permissions({"deny": ["fork(self)"]}, "settings")])
    for given, effect in (({"instruction": "a"}, "deny"), ({"attempts": ["a"]}, "deny"), ({"keep": "x"}, "allow")):
        assert policy.decide(Call.of("fork", given, str(tmp_path), tool.accesses)).effect == effect


async def test_a_configuration_that_cannot_work_is_refused() -> None:
    for config, why in (
        ({"max_atempts": 2}, r"tool-fork: max_atempts: unknown key; did you mean 'max_attempts'\?"),
        ({"max_attempts": 21}, "tool-fork: max_attempts: "),
        ({"timeout": 0}, "tool-fork: timeout: "),
    ):
        with pytest.raises(ValueError, match=why):
            await mount(ModuleCoordinator(session_id="s"), config)
    assert set(config_schema()["properties"]) == {"max_attempts", "max_parallel", "max_depth", "timeout"}
