"""Tasks that begin with the sessions of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.flows.errors import FlowError
from amplifier_foundation.flows.graph import Graph
from amplifier_foundation.flows.tasks import Approval, Branch, ForEach, Loop, Parallel, Sequence, Task, Workflow

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

    from .conftest import MakeRun


def agent(name: str, fork: str | None = None, prompt: str | None = None, **options: Any) -> Task:
    return Task(name, agent="self", prompt=name if prompt is None else prompt, fork=fork, **options)


async def test_a_task_begins_with_the_session_of_another_and_leaves_it_alone(run: MakeRun, store: DurableStore) -> None:
    result = await run(Sequence(agent("plan"), agent("build", "plan"), agent("check", "build")))
    assert result.outputs == {
        "plan": "plan",
        "build": "plan > plan > build",
        "check": "plan > plan > build > plan > plan > build > check",
    }
    plan = await store.get(f"{result.run_id}-plan-1")
    build = await store.get(f"{result.run_id}-build-1")
    assert (plan.message_count, build.fork_of, build.fork_at) == (2, plan.session_id, 2)
    assert build.parent_id == result.run_id


async def test_tasks_side_by_side_fork_one_source_and_see_nothing_of_each_other(run: MakeRun) -> None:
    result = await run(Sequence(agent("base"), Parallel(agent("left", "base"), agent("right", "base"))))
    assert result.outputs["left"] == "base > base > left"
    assert result.outputs["right"] == "base > base > right"


async def test_a_task_beside_its_source_waits_for_it(run: MakeRun) -> None:
    result = await run(Parallel(agent("late", "early"), agent("early")))
    assert result.outputs["late"] == "early > early > late"


async def test_in_a_loop_a_fork_is_of_the_same_iteration_and_after_it_of_the_last(run: MakeRun) -> None:
    draft = agent("draft", prompt="draft {iteration}")
    loop = Loop(Sequence(draft, agent("review", "draft")), until="iteration == 3")
    result = await run(Sequence(loop, agent("final", "draft")))
    assert result.outputs["review"] == "draft 3 > draft 3 > review"
    assert result.outputs["final"] == "draft 3 > draft 3 > final"


async def test_a_fork_without_a_prompt_goes_on(run: MakeRun) -> None:
    result = await run(Sequence(agent("base"), agent("next", "base", prompt="")))
    assert result.status == "completed"


@pytest.mark.parametrize(
    ("step", "code", "source"),
    [
        (Sequence(agent("a"), agent("b", "nobody")), "TASK_FORK_SOURCE_NOT_FOUND", "nobody"),
        (agent("a", "a"), "TASK_FORK_CYCLE", "a"),
        (Parallel(agent("a", "b"), agent("b", "a")), "TASK_FORK_CYCLE", "a"),
        (Sequence(agent("b", "a"), agent("a")), "TASK_FORK_CYCLE", "a"),
        (Parallel(agent("a", depends_on=("b",)), agent("b", "a")), "TASK_FORK_CYCLE", "a"),
        (Loop(agent("a", "a"), until="true"), "TASK_FORK_CYCLE", "a"),
        (Sequence(agent("a"), Task("b", value=1, fork="a")), "TASK_FORK_SESSION_UNAVAILABLE", "a"),
        (Sequence(agent("a"), Task("b", compute=len, fork="a")), "TASK_FORK_SESSION_UNAVAILABLE", "a"),
        (Sequence(Task("a", value=1), agent("b", "a")), "TASK_FORK_SESSION_UNAVAILABLE", "a"),
        (Sequence(Task("a", compute=len), agent("b", "a")), "TASK_FORK_SESSION_UNAVAILABLE", "a"),
        (Sequence(Approval("a"), agent("b", "a")), "TASK_FORK_SESSION_UNAVAILABLE", "a"),
    ],
)
def test_what_cannot_be_forked_is_said_before_anything_runs(step: Any, code: str, source: str) -> None:
    with pytest.raises(FlowError) as caught:
        Graph(Workflow("work", step))
    assert (caught.value.code, caught.value.source) == (code, source)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (agent("a", skip_if="true"), "TASK_FORK_SESSION_UNAVAILABLE"),
        (Task("a", agent="./gone.md", prompt="a", continue_on_fail=True, retries=0), "TASK_FORK_SOURCE_NOT_COMPLETE"),
        (Branch("false", agent("a")), "TASK_FORK_SOURCE_NOT_FOUND"),
    ],
)
async def test_a_source_without_a_session_fails_the_fork_once_and_names_both(
    run: MakeRun, store: DurableStore, source: Any, code: str
) -> None:
    result = await run(Sequence(source, agent("b", "a")))
    assert result.status == "failed"
    assert result.error is not None
    assert (result.error.code, result.error.task, result.error.source) == (code, "b", "a")
    assert not await store.find(f"{result.run_id}-b")


async def test_a_failed_source_fails_the_run_and_nothing_forks_it(run: MakeRun, store: DurableStore) -> None:
    result = await run(Sequence(Task("a", agent="./gone.md", prompt="say a", retries=0), agent("b", "a")))
    assert result.error is not None
    assert (result.error.code, result.error.task) == ("TASK_FAILED", "a")
    assert not await store.find(f"{result.run_id}-b")


async def test_a_task_for_each_item_forks_one_source(run: MakeRun) -> None:
    body = agent("read", "base", prompt="say {item}")
    result = await run(Sequence(agent("base"), ForEach(("x", "y", "z"), body, max_concurrency=2)))
    assert result.outputs["read"] == ["x", "y", "z"]


SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_an_answer_is_corrected_in_its_session_and_a_fork_sees_all_of_it(run: MakeRun) -> None:
    first = agent("first", prompt='say {{"n": "one"}}', output_schema=SHAPE, retries=0)
    result = await run(Sequence(first, agent("second", "first")))
    assert result.outputs["first"] == {"n": 1}
    assert result.outputs["second"].startswith('say {"n": "one"} > {"n": "one"} > Your answer does not fit its schema')
    assert "- $.n: 'one' is not of type 'integer'" in result.outputs["second"]
    assert result.outputs["second"].endswith('> Sorry: {"n": 1} > second')


async def test_an_answer_that_nobody_corrects_fails_its_task(run: MakeRun) -> None:
    result = await run(agent("first", prompt="say no", output_schema=SHAPE, max_schema_retries=0, retries=0))
    assert result.error is not None
    assert (result.error.code, result.error.task) == ("TASK_OUTPUT_INVALID", "first")
    assert result.error.reason.endswith("the answer holds no JSON")


async def test_a_task_in_a_process_of_its_own_forks_and_is_forked(run: MakeRun, store: DurableStore) -> None:
    apart = agent("build", "plan", runner="subprocess")
    result = await run(Sequence(agent("plan"), apart, agent("check", "build")))
    assert result.error is None
    assert result.outputs["build"] == "plan > plan > build"
    assert result.outputs["check"].endswith("> build > plan > plan > build > check")
    assert (await store.get(f"{result.run_id}-build-1")).fork_of == f"{result.run_id}-plan-1"
