"""Runs that wait for people, in the inbox or at an approval system, and runs that people cancel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.clock import SystemClock
from amplifier_core.errors import SessionConflict
from amplifier_core.testing import VirtualClock
from amplifier_foundation.background.approvals import decide, read_all
from amplifier_foundation.flows.errors import FlowError
from amplifier_foundation.flows.runs import cancel_run, fork_run, read_questions
from amplifier_foundation.flows.tasks import Approval, Branch, ForEach, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore
    from amplifier_foundation.background.approvals import Approval as Question

    from .conftest import MakeRun


async def answer(store: DurableStore, question: Question, *, is_allowed: bool = True, said: str = "") -> None:
    await decide(store, question, "approved" if is_allowed else "denied", said=said)


def counting(name: str, calls: list[str], **options: Any) -> Task:
    def compute(inputs: Any) -> str:
        calls.append(name)
        return name

    return Task(name, compute=compute, **options)


async def test_a_run_waits_for_an_approval_and_does_the_rest_of_its_work_meanwhile(
    run: MakeRun, store: DurableStore
) -> None:
    calls: list[str] = []
    step = Sequence(
        Parallel(
            Sequence(
                counting("before", calls),
                counting("deploy", calls, needs_approval="Deploy {before}?", deps=("before",)),
                counting("after", calls),
            ),
            counting("beside", calls),
        ),
        counting("last", calls, depends_on=("beside",)),
    )
    first = await run(step)
    assert (first.status, first.outputs) == ("waiting", {"before": "before", "beside": "beside"})
    [question] = first.questions
    assert (question.question, question.arguments["task"]) == ("Deploy before?", "deploy")
    assert [each.id for each in await read_all(store, SystemClock().now())] == [question.id]
    again = await run(step, resume=first.run_id)
    assert (again.status, [each.id for each in again.questions], calls) == (
        "waiting",
        [question.id],
        ["before", "beside"],
    )
    await answer(store, question)
    done = await run(step, resume=first.run_id)
    assert (done.status, calls) == ("completed", ["before", "beside", "deploy", "after", "last"])
    assert await read_all(store, SystemClock().now()) == []


async def test_a_fork_begins_at_one_iteration_or_at_the_question_that_waits(run: MakeRun, store: DurableStore) -> None:
    calls: list[str] = []
    step = Loop(Sequence(counting("work", calls), Approval("ask", on_deny="continue")), until="ask.approved")
    first = await run(step)
    await answer(store, first.questions[0], is_allowed=False)
    second = await run(step, resume=first.run_id)
    source = await store.get(first.run_id)
    for at, done in (("ask", 1), ("ask#1", 1), ("work#2", 3), ("ask#2", 4)):
        del calls[:]
        fork = await fork_run(store, source, at)
        forked = await run(step, resume=fork.session_id)
        asked = [each.arguments["task"] for each in forked.questions]
        assert (asked, len(calls)) == (["ask#1" if done == 1 else "ask#2"], 1 if done == 3 else 0)
    assert [each.id for each in await read_questions(store, source)] == [each.id for each in second.questions]


@pytest.mark.parametrize("then", ["fail", "continue"])
async def test_a_denial_fails_the_run_or_is_an_output(run: MakeRun, store: DurableStore, then: Any) -> None:
    calls: list[str] = []
    step = Sequence(
        Approval("ask", question="Sure?", on_deny=then),
        Branch("ask.approved", counting("yes", calls), counting("no", calls)),
    )
    waiting = await run(step)
    await answer(store, waiting.questions[0], is_allowed=False, said="not today")
    done = await run(step, resume=waiting.run_id)
    if then == "fail":
        assert done.error is not None
        assert (done.error.code, "not today" in str(done.error), calls) == ("TASK_DENIED", True, [])
    else:
        assert (done.outputs["ask"], calls) == ({"approved": False, "said": "not today"}, ["no"])


async def test_each_iteration_and_each_item_is_asked_about_by_itself(run: MakeRun, store: DurableStore) -> None:
    calls: list[str] = []
    each = ForEach(("a", "b"), Task("work", compute=lambda inputs: inputs["item"], needs_approval="Do {item}?"))
    step = Sequence(Loop(Approval("more"), until="iteration == 2"), each, counting("end", calls))
    result = await run(step)
    asked = []
    while result.status == "waiting":
        for question in sorted(result.questions, key=lambda each: str(each.arguments["task"])):
            asked.append(question.arguments["task"])
            await answer(store, question)
        result = await run(step, resume=result.run_id)
    assert asked == ["more#1", "more#2", "work#1", "work#2"]
    assert (result.outputs["work"], calls) == (["a", "b"], ["end"])


async def test_a_task_that_waits_for_one_that_waits_for_a_person_hangs_nothing(
    run: MakeRun, store: DurableStore
) -> None:
    step = Parallel(
        Task("late", agent="self", fork="asked", prompt="late"),
        Sequence(Task("asked", agent="self", prompt="asked", needs_approval=True), Task("next", value=1)),
        Task("after", value=2, depends_on=("next",)),
    )
    waiting = await run(step)
    assert (waiting.status, waiting.outputs) == ("waiting", {})
    await answer(store, waiting.questions[0])
    done = await run(step, resume=waiting.run_id)
    assert done.outputs == {"late": "asked > asked > late", "asked": "asked", "next": 1, "after": 2}


async def test_a_question_without_an_answer_counts_as_denied_when_its_time_is_over(
    run: MakeRun, store: DurableStore
) -> None:
    step, clock = Approval("ask"), VirtualClock(SystemClock().now())
    waiting = await run(step, clock=clock, approval_timeout=60.0)
    await clock.advance(61)
    done = await run(step, clock=clock, resume=waiting.run_id)
    assert done.error is not None and done.error.code == "TASK_DENIED"
    assert str(done.error).partition(" before ")[0] == "TASK_DENIED: task 'ask': it was denied: nobody answered"


async def test_an_answer_is_kept_over_a_kill_and_a_fork_before_it_asks_anew(run: MakeRun, store: DurableStore) -> None:
    calls: list[str] = []
    step = Sequence(counting("first", calls), Approval("ask"), Approval("again"))
    waiting = await run(step)
    await answer(store, waiting.questions[0])
    second = await run(step, resume=waiting.run_id)
    assert [each.arguments["task"] for each in second.questions] == ["again"]
    fork = await fork_run(store, await store.get(waiting.run_id), "ask")
    forked = await run(step, resume=fork.session_id)
    assert ([each.arguments["task"] for each in forked.questions], calls) == (["ask"], ["first"])
    await answer(store, second.questions[0])
    assert (await run(step, resume=waiting.run_id)).status == "completed"
    assert [each.arguments["task"] for each in await read_questions(store, await store.get(fork.session_id))] == ["ask"]


async def test_a_program_may_answer_by_itself(run: MakeRun) -> None:
    class Yes:
        async def request_approval(self, prompt: str, options: list[str], *limits: Any) -> str:
            assert prompt == "ask: Sure?"
            return options[0]

    done = await run(Approval("ask", question="Sure?"), approval_system=Yes())
    assert done.outputs == {"ask": {"approved": True, "said": ""}}


async def test_a_waiting_run_is_cancelled_for_good(run: MakeRun, store: DurableStore) -> None:
    waiting = await run(Approval("ask"))
    assert await cancel_run(store, await store.get(waiting.run_id))
    record = await store.get(waiting.run_id)
    assert (record.status, await read_all(store, SystemClock().now())) == ("cancelled", [])
    with pytest.raises(SessionConflict, match="has ended: it is cancelled"):
        await cancel_run(store, record)


async def test_a_running_run_is_cancelled_by_another_process(run: MakeRun, store: DurableStore) -> None:
    begun, clock = asyncio.Event(), VirtualClock(SystemClock().now())

    async def wait(inputs: Any) -> None:
        begun.set()
        await asyncio.sleep(3600)

    running = asyncio.ensure_future(run(Task("wait", compute=wait), clock=clock))
    await begun.wait()
    [record] = [each for each in await store.sessions() if each.name == "work"]
    assert not await cancel_run(store, record)
    while not running.done():
        await clock.advance(1)
        await asyncio.sleep(0.001)
    result = await running
    assert (result.status, (await store.get(record.session_id)).status) == ("cancelled", "cancelled")
    again = await run(Task("wait", value="over"), resume=record.session_id, accept=True)
    assert again.outputs == {"wait": "over"}


async def test_the_steps_of_a_run_are_events_each_once(run: MakeRun, store: DurableStore) -> None:
    step = Sequence(Task("one", value=1), Task("never", value=2, skip_if="true"), Approval("ask"))
    waiting = await run(step)
    await answer(store, waiting.questions[0])
    await run(step, resume=waiting.run_id)
    events = [each for each in await store.events(source_session_id=waiting.run_id) if each.name.startswith("flow:")]
    assert [(each.name, each.data.get("key")) for each in events] == [
        ("flow:task:completed", "one"),
        ("flow:task:skipped", "never"),
        ("flow:task:completed", "ask"),
        ("flow:run:completed", None),
    ]
    assert events[0].data["output"] == 1
    assert events[0].project == (await store.get(waiting.run_id)).project


async def test_only_the_task_of_an_agent_has_a_cache_and_a_budget(run: MakeRun) -> None:
    for options in ({"cache": True}, {"budget": {"turns": 1}}):
        with pytest.raises(FlowError, match="for the task of an agent"):
            await run(Task("a", value=1, **options))
