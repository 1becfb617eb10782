"""Test the requests of calls to the program, and the results of its answers."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import (
    BundleLoadError,
    BundleNotFoundError,
    ForkRefused,
    SessionNotFound,
    SpawnRefused,
    SpawnTimeout,
    UnknownName,
)
from amplifier_core.ids import validate_session_id
from amplifier_tool_delegate.tool import new_session_id

if TYPE_CHECKING:
    from .conftest import Program

RESUME = ". Resume its session with session_id '{0}'"


async def test_a_program_is_asked_for_everything_the_contract_names(program: Program) -> None:
    await program.call(agent="reviewer")
    [asked] = program.asked
    assert asked.pop("sub_session_id").endswith("_reviewer")
    assert asked == {
        "agent_name": "reviewer",
        "instruction": "Look.",
        "parent_session": program.coordinator.session,
        "agent_configs": program.coordinator.config["agents"],
        "tool_inheritance": None,
        "hook_inheritance": None,
        "orchestrator_config": None,
        "provider_preferences": None,
        "self_delegation_depth": 0,
        "session_metadata": {"agent": "reviewer"},
        "parent_messages": None,
        "context_depth": "none",
        "context_scope": "conversation",
        "context_turns": 5,
    }


async def test_what_the_configuration_says_of_inheritance_is_handed_on(program: Program) -> None:
    config = {"exclude_tools": ["tool-delegate"], "inherit_hooks": ["hooks-logging"], "exclude_hooks": []}
    await program.call(config, agent="reviewer")
    [asked] = program.asked
    assert asked["tool_inheritance"] == {"exclude_tools": ["tool-delegate"]}
    assert asked["hook_inheritance"] == {"exclude_hooks": [], "inherit_hooks": ["hooks-logging"]}


async def test_the_context_that_the_model_chose_is_handed_on(program: Program) -> None:
    await program.call(agent="reviewer", context_depth="recent", context_scope="full", context_turns=2)
    [asked] = program.asked
    assert [asked[f"context_{name}"] for name in ("depth", "scope", "turns")] == ["recent", "full", 2]


async def test_a_preference_is_read_by_key_and_by_attribute(program: Program) -> None:
    wishes = [{"provider": "anthropic", "model": "claude-*"}, {"provider": "openai", "model": None}]
    await program.call(agent="reviewer", provider_preferences=wishes, model_role="fast")
    [asked] = program.asked
    preferences = asked["provider_preferences"]
    assert preferences == [{"provider": "anthropic", "model": "claude-*"}, {"provider": "openai"}]
    assert [(each.provider, each.model) for each in preferences] == [("anthropic", "claude-*"), ("openai", None)]
    assert asked["session_metadata"] == {"agent": "reviewer", "model_role": "fast"}
    assert "model_role" not in asked


async def test_a_model_role_is_handed_on_to_a_program_that_takes_it(program: Program) -> None:
    async def spawn(model_role: str = "", **asked: Any) -> dict[str, Any]:
        return {"output": model_role}

    program.enqueue(spawn=spawn)
    result = await program.call(agent="reviewer", model_role="fast")
    assert result.output["response"] == "fast"


async def test_a_program_that_takes_no_context_is_not_given_any(program: Program) -> None:
    async def spawn(**asked: Any) -> dict[str, Any]:
        assert not [key for key in asked if key.startswith("context_")]
        return {"output": "Done."}

    program.enqueue(spawn=spawn)
    assert (await program.call(agent="reviewer")).success
    kind, message = await program.failure(agent="reviewer", context_depth="all")
    assert kind == "ContextUnavailable"
    assert "write everything the agent must know into the instruction" in message


async def test_the_result_is_what_the_program_gave_back(program: Program) -> None:
    usage = {"input_tokens": 3}
    program.answer = {
        "output": "Two faults.",
        "turn_count": 4,
        "metadata": {"usage": usage, "cost_usd": Decimal("0.10")},
    }
    result = await program.call(agent="lib:bug-hunter")
    assert result.success
    assert result.output == {
        "response": "Two faults.",
        "session_id": program.asked[0]["sub_session_id"],
        "status": "completed",
        "turn_count": 4,
        "agent": "lib:bug-hunter",
        "usage": usage,
        "cost_usd": Decimal("0.10"),
    }
    assert '"cost_usd": "0.10"' in result.get_serialized_output()


@pytest.mark.parametrize("metadata", [None, "none", {}])
async def test_an_answer_of_the_least_that_a_program_may_give_is_a_result(program: Program, metadata: Any) -> None:
    async def spawn(**asked: Any) -> dict[str, Any]:
        return {"output": None, "metadata": metadata}

    program.enqueue(spawn=spawn)
    output = (await program.call(agent="reviewer")).output
    assert output.pop("session_id").endswith("_reviewer")
    assert output == {"response": "", "status": "completed", "turn_count": 0, "agent": "reviewer"}


async def test_an_answer_that_is_no_mapping_is_the_programs_error(program: Program) -> None:
    program.answer = "Done."
    assert await program.failure(agent="reviewer") == (
        "ProgramError",
        "agent 'reviewer' returned str, not a mapping",
    )


async def test_an_earlier_session_is_gone_on_with(program: Program) -> None:
    program.answer = {"output": "And a third.", "metadata": {"agent": "reviewer"}}
    result = await program.call(session_id="a-b_reviewer")
    assert program.asked == [{"sub_session_id": "a-b_reviewer", "instruction": "Look."}]
    assert (result.output["response"], result.output["agent"]) == ("And a third.", "reviewer")
    assert program.names() == ["delegate:agent_resumed", "delegate:agent_completed"]


async def test_an_earlier_session_keeps_its_agent_whatever_the_call_names(program: Program) -> None:
    program.answer = {"output": "And a third.", "metadata": {"agent": "reviewer"}}
    result = await program.call(session_id="a-b_reviewer", agent="lib:bug-hunter")
    assert result.output["agent"] == "reviewer"
    program.answer = {"output": "And a third."}
    result = await program.call(session_id="a-b_reviewer", agent="reviewer")
    assert result.output["agent"] == "reviewer"


async def test_a_session_that_is_not_there_cannot_be_gone_on_with(program: Program) -> None:
    program.answer = SessionNotFound("a")
    kind, message = await program.failure(session_id="a")
    assert kind == "SessionNotFound"
    assert message.startswith("session 'a' failed: SessionNotFound: no session 'a'")
    assert "Resume" not in message


@pytest.mark.parametrize(
    ("given", "capability", "message"),
    [
        ({"agent": "reviewer"}, "spawn", "this program offers no 'session.spawn', so it cannot run agents"),
        (
            {"session_id": "a"},
            "resume",
            "this program offers no 'session.resume', so it cannot resume an agent's session",
        ),
    ],
)
async def test_a_program_that_runs_no_agents_is_named_as_the_cause(
    program: Program, given: dict[str, Any], capability: str, message: str
) -> None:
    program.enqueue(**{capability: None})
    kind, said = await program.failure(**given)
    assert kind == "Unavailable"
    assert said.startswith(message)
    assert program.names() == []


@pytest.mark.parametrize(
    ("refusal", "told"), [(SpawnRefused, "spawn from session 'lead'"), (ForkRefused, "fork of session 'lead'")]
)
async def test_a_refusal_is_told_in_the_words_of_who_refused(program: Program, refusal: Any, told: str) -> None:
    program.answer = refusal("lead", "there are 20 already")
    assert await program.failure(agent="reviewer") == (refusal.__name__, f"{told} refused: there are 20 already")
    assert program.names() == ["delegate:agent_spawned", "delegate:error"]


async def test_an_agent_that_failed_leaves_a_session_to_go_on_with(program: Program) -> None:
    program.answer = RuntimeError("the model is away")
    result = await program.call(agent="reviewer")
    session_id = program.asked[0]["sub_session_id"]
    message = "agent 'reviewer' failed: RuntimeError: the model is away" + RESUME.format(session_id)
    assert result.error == {
        "message": message,
        "type": "AgentFailed",
        "session_id": session_id,
        "cause": "RuntimeError",
    }
    assert result.output == message


async def test_without_a_way_to_go_on_the_message_does_not_promise_one(program: Program) -> None:
    program.answer = RuntimeError()
    program.enqueue(resume=None)
    _, message = await program.failure(agent="reviewer")
    assert message.startswith("agent 'reviewer' failed: RuntimeError. Its session is '")


@pytest.mark.parametrize("status", ["failed", "incomplete"])
async def test_an_agent_that_did_not_complete_is_a_failure_with_its_output(program: Program, status: str) -> None:
    program.answer = {"status": status, "output": "Half of it.", "session_id": "s", "error": "too many calls"}
    result = await program.call(agent="reviewer")
    message = f"agent 'reviewer' ended as '{status}': too many calls" + RESUME.format("s")
    assert (result.success, result.output["response"], result.output["error"]) == (False, "Half of it.", message)
    assert result.error == {"message": message, "type": "AgentFailed", "session_id": "s"}
    assert program.events[-1][1]["error"] == message


async def test_an_agent_that_was_stopped_is_told_as_cancelled(program: Program) -> None:
    program.answer = {"status": "cancelled", "output": ""}
    kind, message = await program.failure(agent="reviewer")
    assert kind == "AgentFailed"
    assert "ended as 'cancelled'" in message
    assert program.names() == ["delegate:agent_spawned", "delegate:agent_cancelled"]


async def test_the_programs_time_limit_tells_the_session_to_go_on_with(program: Program) -> None:
    program.answer = SpawnTimeout("s-1", 2.5)
    kind, message = await program.failure(agent="reviewer")
    assert kind == "SpawnTimeout"
    assert message == "agent 'reviewer' was stopped after 2.5 s: its time was over" + RESUME.format("s-1")


async def test_the_tool_keeps_the_time_where_the_program_does_not(program: Program) -> None:
    async def forever(asked: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    program.answer = forever
    result = await program.call({"timeout": 0.001}, agent="reviewer")
    assert result.error is not None
    assert result.error["type"] == "SpawnTimeout"
    assert result.error["session_id"] == program.asked[0]["sub_session_id"]
    assert result.error["message"].startswith("agent 'reviewer' was stopped after 0.001 s: its time was over")


async def test_a_program_that_takes_a_time_limit_keeps_it(program: Program) -> None:
    async def spawn(timeout: float | None = None, **asked: Any) -> dict[str, Any]:  # noqa: ASYNC109 - a capability's
        return {"output": f"within {timeout}"}

    program.enqueue(spawn=spawn, resume=spawn)
    for given in ({"agent": "reviewer"}, {"session_id": "s"}):
        assert (await program.call({"timeout": 9}, **given)).output["response"] == "within 9.0"


async def test_a_time_limit_of_the_agents_own_is_a_failure_like_another(program: Program) -> None:
    program.answer = TimeoutError("the service did not answer")
    kind, message = await program.failure({"timeout": 60}, agent="reviewer")
    assert kind == "AgentFailed"
    assert message.startswith("agent 'reviewer' failed: TimeoutError: the service did not answer")


async def test_a_cancellation_reaches_the_agent_and_whoever_waits(program: Program) -> None:
    ended: list[str] = []
    running = asyncio.Event()

    async def work(asked: dict[str, Any]) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(asked["agent_name"])

    program.answer = work
    task = asyncio.create_task(program.call(agent="reviewer"))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["reviewer"]
    assert program.names() == ["delegate:agent_spawned", "delegate:agent_cancelled"]


async def test_calls_of_one_turn_run_side_by_side(program: Program) -> None:
    everybody = asyncio.Barrier(3)

    async def meet(asked: dict[str, Any]) -> dict[str, Any]:
        await everybody.wait()
        return {"output": asked["instruction"]}

    program.answer = meet
    tool = await program.tool()
    async with asyncio.timeout(120):
        results = await asyncio.gather(*(tool.execute({"agent": "reviewer", "instruction": name}) for name in "abc"))
    assert [result.output["response"] for result in results] == ["a", "b", "c"]
    assert len({result.output["session_id"] for result in results}) == 3


async def test_hooks_see_who_works_for_whom(program: Program) -> None:
    await program.call(agent="reviewer")
    about = {
        "agent": "reviewer",
        "sub_session_id": program.asked[0]["sub_session_id"],
        "parent_session_id": "lead",
    }
    told = [(name, {key: data[key] for key in data if key != "timestamp"}) for name, data in program.events]
    assert told == [
        ("delegate:agent_spawned", about),
        ("delegate:agent_completed", {**about, "success": True, "status": "completed"}),
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            BundleNotFoundError("bundle 'lib:gone' is not there"),
            "unknown agent 'lib:gone' (BundleNotFoundError: bundle",
        ),
        (UnknownName("agent", "lib:gone", ["reviewer"]), "unknown agent 'lib:gone'; did you mean 'lib:bug-hunter'?"),
    ],
)
async def test_a_bundle_that_the_program_does_not_find_is_an_unknown_agent(
    program: Program, error: Exception, said: str
) -> None:
    program.answer = error
    kind, message = await program.failure(agent="lib:gone")
    assert kind == "UnknownAgent"
    assert message.startswith(said)
    assert "Resume" not in message


@pytest.mark.parametrize("error", [BundleLoadError("line 3: no mapping"), UnknownName("storage", "x", [])])
async def test_where_no_session_began_there_is_none_to_go_on_with(program: Program, error: Exception) -> None:
    program.answer = error
    kind, message = await program.failure(agent="reviewer")
    assert kind == type(error).__name__
    assert message == f"agent 'reviewer' failed: {kind}: {error}"


async def test_a_capability_that_does_not_say_what_it_takes_is_called_all_the_same(program: Program) -> None:
    class Opaque:
        __signature__ = "none"

        async def __call__(self, **asked: Any) -> dict[str, Any]:
            return {"output": asked["agent_name"]}

    program.enqueue(spawn=Opaque())
    assert (await program.call(agent="reviewer")).output["response"] == "reviewer"


async def test_what_a_program_says_is_cut_where_it_is_too_long(program: Program) -> None:
    program.answer = RuntimeError("x" * 1_000_000)
    _, message = await program.failure(agent="reviewer")
    assert len(message) < 3_000


def test_an_id_tells_whose_child_a_session_is() -> None:
    first = new_session_id("Bug Hunter", None)
    second = new_session_id("/a/" + "b" * 200 + "/bundle.md", first)
    third = new_session_id("…", second)
    assert [each.partition("_")[2] for each in (first, third)] == ["bug-hunter", "agent"]
    spans = [each.partition("_")[0].split("-") for each in (first, second, third)]
    assert [spans[1][0], spans[2][0]] == [spans[0][1], spans[1][1]]
    make = partial(new_session_id, "a")
    assert make("lead")[:16] == make("lead")[:16] != make("other")[:16]
    assert [validate_session_id(each) for each in (first, second, third)] == [first, second, third]
