"""Runs of workflows: order, inputs, decisions, failures, and what a resumed run does not do again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.errors import ForkRefused, SessionConflict, SpawnRefused
from amplifier_core.testing import VirtualClock
from amplifier_foundation.flows.description import describe_workflow, digest_of
from amplifier_foundation.flows.errors import FlowError
from amplifier_foundation.flows.failures import explain
from amplifier_foundation.flows.graph import Graph
from amplifier_foundation.flows.outputs import find_json
from amplifier_foundation.flows.tasks import Approval, Branch, ForEach, Loop, Parallel, Sequence, Task, Workflow

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import DurableStore
    from amplifier_foundation.flows.tasks import Step

    from .conftest import MakeRun


CLOSED = """
from amplifier_core.models import HookResult

async def mount(coordinator, config):
    async def deny(event, data): return HookResult(action="deny", reason="closed")
    coordinator.hooks.register("prompt:submit", deny)
"""


class Counted:
    """Functions that count their calls, and fail as often as they are told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}

    def task(self, name: str, output: Any = None, **options: Any) -> Task:
        def compute(inputs: Any) -> Any:
            self.calls.append(name)
            if self.failures.get(name, 0) > 0:
                self.failures[name] -= 1
                raise RuntimeError(f"{name} broke")
            return output(inputs) if callable(output) else output

        return Task(name, compute=compute, **options)


@pytest.fixture
def counted() -> Counted:
    return Counted()


async def test_steps_come_in_their_order_and_see_what_they_name(run: MakeRun, counted: Counted) -> None:
    double = counted.task("double", lambda inputs: inputs["one"] * 2, needs={"one": "first"})
    result = await run(
        Sequence(Task("first", value=21), double, Task("say", agent="self", prompt="say {double}", deps=("double",)))
    )
    assert result.outputs == {"first": 21, "double": 42, "say": "42"}


async def test_a_run_that_is_cancelled_as_it_begins_is_not_left_running(
    run: MakeRun, store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = store.update

    async def cut(*args: Any, **changes: Any) -> None:
        await update(*args, **changes)
        if changes.get("status") == "running":
            running.cancel()
            await asyncio.sleep(0)

    monkeypatch.setattr(store, "update", cut)
    running = asyncio.ensure_future(run(Task("first", value=1)))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [record.status for record in await store.sessions()] == ["interrupted"]


async def test_a_condition_chooses_a_branch_and_the_other_is_absent(run: MakeRun, counted: Counted) -> None:
    branch = Branch("kind.of == 'big'", counted.task("big"), counted.task("small"))
    result = await run(
        Sequence(Task("kind", value={"of": "small"}), branch, counted.task("after", depends_on=("big",)))
    )
    assert counted.calls == ["small", "after"]
    assert result.outputs["big"] is None


@pytest.mark.parametrize("inner", [True, False])
async def test_a_branch_that_begins_with_a_branch_decides_for_itself(
    run: MakeRun, counted: Counted, inner: bool
) -> None:
    branch = Branch("input.outer", Branch("input.inner", counted.task("both"), counted.task("outer")))
    result = await run(branch, input={"outer": True, "inner": inner})
    assert counted.calls == (["both"] if inner else ["outer"])
    await run(branch, resume=result.run_id)
    assert len(counted.calls) == 1


async def test_a_loop_ends_when_its_condition_holds(run: MakeRun, counted: Counted) -> None:
    verdict = counted.task("verdict", lambda inputs: {"ok": inputs["iteration"] == 2})
    result = await run(Loop(verdict, until="verdict.ok"))
    assert (counted.calls, result.outputs["verdict"]) == (["verdict", "verdict"], {"ok": True})


@pytest.mark.parametrize(("then", "status"), [("fail", "failed"), ("continue", "completed")])
async def test_a_loop_without_an_end_fails_or_goes_on(run: MakeRun, counted: Counted, then: Any, status: str) -> None:
    loop = Loop(counted.task("again"), until="false", max_iterations=3, on_max_reached=then)
    result = await run(Sequence(loop, counted.task("after")))
    assert result.status == status
    assert counted.calls.count("again") == 3
    assert (result.error is not None and result.error.code == "LOOP_EXHAUSTED") == (then == "fail")


async def test_loops_in_loops_have_results_of_their_own(run: MakeRun, counted: Counted) -> None:
    inner = Loop(counted.task("inner", lambda inputs: inputs["iteration"]), until="inner == 2")
    outer = Loop(
        Sequence(inner, counted.task("outer", lambda inputs: inputs["inner"], deps=("inner",))), until="iteration == 2"
    )
    result = await run(outer)
    assert counted.calls == ["inner", "inner", "outer", "inner", "inner", "outer"]
    assert result.outputs == {"inner": 2, "outer": 2}


async def test_so_many_run_at_a_time_and_no_more(run: MakeRun) -> None:
    running, most = 0, 0

    async def work(inputs: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await run(ForEach(tuple(range(20)), Task("work", compute=work), max_concurrency=3))
    assert most == 3


async def test_a_failure_that_may_pass_is_tried_again(run: MakeRun, counted: Counted) -> None:
    counted.failures["flaky"] = 2
    clock = VirtualClock()
    running = asyncio.ensure_future(run(counted.task("flaky", "done", retries=2), clock=clock))
    while not running.done():
        await clock.advance(60)
        await asyncio.sleep(0.001)
    result = await running
    assert (result.outputs, counted.calls) == ({"flaky": "done"}, ["flaky"] * 3)


def fail(inputs: Any) -> Any:
    raise RuntimeError("it broke")


ODD = {1: (2, 3), "price": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "path": PurePosixPath("a/b")}
NO_JSON = "its output: set is not JSON. Give text, numbers, lists or mappings"


@pytest.mark.parametrize(
    ("step", "task", "told"),
    [
        (Task("a", compute=lambda inputs: {1}), "a", f"TASK_OUTPUT_INVALID: task 'a': {NO_JSON}"),
        (Parallel(Task("a", compute=lambda inputs: {1}), Task("b", value=1)), "a", NO_JSON),
        (Task("a", compute=lambda inputs: [1, float("nan")]), "a", "its output[1]: nan is not JSON"),
        (
            Task("a", agent="self", prompt='say {{"n": NaN}}', output_schema={}, max_schema_retries=0, retries=0),
            "a",
            "TASK_OUTPUT_INVALID: task 'a': its answer does not fit its schema: $.n: nan is not JSON",
        ),
        (Task("a", value=1, skip_if=fail), "a", "TASK_FAILED: task 'a': `skip_if`: RuntimeError: it broke"),
        (Approval("a", question=fail), "a", "TASK_FAILED: task 'a': its prompt: RuntimeError: it broke"),
        (Approval("a", question=lambda inputs: {1}), "a", "TASK_INVALID: task 'a': its prompt must be text, not set"),  # type: ignore[arg-type,return-value]
        (Branch(fail, Task("a", value=1)), "", "TASK_FAILED: the condition of the branch of a: RuntimeError: it broke"),
        (Loop(Task("a", value=1), until=fail), "", "TASK_FAILED: `until` of the loop of a: RuntimeError: it broke"),
        (ForEach(fail, Task("a", value=1)), "", "TASK_FAILED: the items of the ForEach of a: RuntimeError: it broke"),
    ],
)
async def test_a_function_that_fails_or_gives_no_json_fails_its_task_with_its_name(
    run: MakeRun, store: DurableStore, step: Any, task: str, told: str
) -> None:
    result = await run(step)
    assert (result.status, result.error and result.error.task) == ("failed", task)
    assert told in str(result.error)
    assert (await store.get(result.run_id)).error == str(result.error)


@pytest.mark.parametrize("given", [{"compute": lambda inputs: ODD}, {"value": ODD}])
async def test_a_task_sees_the_same_outputs_before_others_in_a_run_and_in_its_resume(
    run: MakeRun, given: dict[str, Any]
) -> None:
    seen: list[Any] = []

    def see(inputs: dict[str, Any]) -> str:
        seen.append(inputs["odd"])
        if len(seen) == 1:
            raise RuntimeError("it broke")
        return "seen"

    step = Sequence(Task("odd", **given), Task("see", compute=see, deps=("odd",), retries=0))
    first = await run(step)
    second = await run(step, resume=first.run_id)
    assert (first.status, second.status) == ("failed", "completed")
    assert seen == [{"1": [2, 3], "price": "1.50", "at": "2026-01-02T00:00:00+00:00", "path": "a/b"}] * 2
    assert second.outputs["odd"] == seen[0]


@pytest.mark.parametrize("broken", [{"compute": lambda inputs: {1}}, {"value": 1, "skip_if": fail}])
async def test_a_run_goes_on_without_a_task_whose_function_fails(run: MakeRun, broken: Any) -> None:
    result = await run(Sequence(Task("a", continue_on_fail=True, **broken), Task("b", value=1)))
    assert (result.status, result.outputs) == ("completed", {"a": None, "b": 1})


async def test_a_resumed_run_does_nothing_twice(run: MakeRun, counted: Counted, store: DurableStore) -> None:
    counted.failures["third"] = 1
    said = Task("said", agent="self", prompt="hello")
    step = Sequence(
        counted.task("first"),
        Branch("input.deep", Loop(counted.task("second"), until="iteration == 2")),
        said,
        counted.task("third", "done", retries=0),
    )
    failed = await run(step, input={"deep": True})
    assert (failed.status, (await store.get(failed.run_id)).status) == ("failed", "failed")
    again = await run(step, resume=failed.run_id)
    assert (again.status, again.outputs["third"], again.outputs["said"]) == ("completed", "done", "hello")
    assert counted.calls == ["first", "second", "second", "third", "third"]
    assert len(await store.find(f"{failed.run_id}-said")) == 1


async def test_a_run_cut_in_the_turn_of_an_agent_goes_on_with_it(
    run: MakeRun, counted: Counted, store: DurableStore
) -> None:
    cut = asyncio.Event()

    async def wait(inputs: Any) -> None:
        cut.set()
        await asyncio.sleep(3600)

    said = Task("said", agent="self", prompt="hello")
    running = asyncio.ensure_future(run(Sequence(said, Task("wait", compute=wait))))
    await cut.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [record] = [each for each in await store.sessions() if each.name == "work"]
    assert record.status == "interrupted"
    again = await run(Sequence(said, counted.task("wait", "over")), resume=record.session_id, accept=True)
    assert again.outputs == {"said": "hello", "wait": "over"}


async def test_a_changed_workflow_is_noticed_before_anything_of_it_runs(run: MakeRun, counted: Counted) -> None:
    counted.failures["a"] = 1
    failed = await run(counted.task("a", retries=0))
    with pytest.raises(FlowError, match="WORKFLOW_CHANGED: the workflow has changed"):
        await run(Sequence(counted.task("a", retries=0), counted.task("b")), resume=failed.run_id)
    assert counted.calls == ["a"]
    assert (await run(counted.task("a", retries=0), resume=failed.run_id)).status == "completed"


async def test_a_run_of_a_version_that_described_functions_by_their_bytecode_goes_on(
    run: MakeRun, counted: Counted, store: DurableStore
) -> None:
    counted.failures["a"] = 1
    failed = await run(counted.task("a", retries=0))
    record = await store.get(failed.run_id)
    workflow = Workflow(record.name or "", counted.task("a", retries=0))
    earlier, now = (digest_of(describe_workflow(workflow, by_bytecode=each)) for each in (True, False))
    assert record.metadata["flow"]["digest"] == now != earlier
    await store.update(
        failed.run_id, metadata={**record.metadata, "flow": {**record.metadata["flow"], "digest": earlier}}
    )
    with pytest.raises(FlowError, match="WORKFLOW_CHANGED"):
        await run(counted.task("a", retries=1), resume=failed.run_id)
    assert (await run(counted.task("a", retries=0), resume=failed.run_id)).status == "completed"
    assert (await store.get(failed.run_id)).metadata["flow"]["digest"] == now


async def test_a_completed_run_that_is_resumed_is_announced_once(
    run: MakeRun, counted: Counted, store: DurableStore
) -> None:
    """A kill may come between the end of a run and its answer: whoever resumes it then wakes nobody again."""
    done = await run(counted.task("a", 1))
    assert (await run(counted.task("a", 1), resume=done.run_id)).outputs == {"a": 1}

    async def ends() -> int:
        return [each.name for each in await store.events(source_session_id=done.run_id)].count("flow:run:completed")

    assert (counted.calls, await ends()) == (["a"], 1)
    longer = Sequence(counted.task("a", 1), counted.task("b", 2))
    assert (await run(longer, resume=done.run_id, accept=True)).outputs == {"a": 1, "b": 2}
    assert (counted.calls, await ends()) == (["a", "b"], 2)


async def test_a_run_that_runs_is_not_run_a_second_time(run: MakeRun, store: DurableStore) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(inputs: Any) -> None:
        begun.set()
        await over.wait()

    first = asyncio.ensure_future(run(Task("wait", compute=wait)))
    await begun.wait()
    [record] = [each for each in await store.sessions() if each.name == "work"]
    with pytest.raises(SessionConflict):
        await run(Task("wait", compute=wait), resume=record.session_id)
    over.set()
    assert (await first).status == "completed"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Task("a b", value=1), "an id has up to 64"),
        (Task("input", value=1), "an id has up to 64"),
        (Sequence(Task("a", value=1), Task("a", value=2)), "two tasks have this id"),
        (Task("a", value=1, depends_on=("b",)), "there is no task 'b' to depend on"),
        (Task("a", agent="self"), "its prompt is empty"),
        (Task("a", value={"b": [{1}]}), "TASK_OUTPUT_INVALID: task 'a': its output.b[0]: set is not JSON. Give text,"),
        (Branch("1 +", Task("a", value=1)), "the condition '1 +'"),
        (Loop(Task("a", value=1), until="true", max_iterations=0), "a loop has 1 iteration or more"),
        (Parallel(Task("a", value=1, depends_on=("b",)), Task("b", value=1, depends_on=("a",))), "wait for each other"),
    ],
)
def test_a_workflow_that_cannot_run_says_why(step: Any, told: str) -> None:
    with pytest.raises(FlowError, match="TASK_") as caught:
        Graph(Workflow("work", step))
    assert told in str(caught.value)


def test_a_graph_of_10_000_tasks_is_built(counted: Counted) -> None:
    steps = [Parallel(*(Task(f"t{row}-{n}", value=n) for n in range(100))) for row in range(100)]
    assert len(Graph(Workflow("work", Sequence(*steps))).places) == 10_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure:\n```json\n{"a": [1, {"b": 2}]}\n```\nDone.', {"a": [1, {"b": 2}]}),
        ('First {"a": 1}, then {"a": 2}.', {"a": 2}),
        ('{"a": "}{"}', {"a": "}{"}),
        ("a {b} c", None),
        ("42", 42),
    ],
)
def test_the_last_json_in_an_answer_counts(text: str, found: Any) -> None:
    assert find_json(text) == ((True, found) if found is not None else (False, None))


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (Task("b", agent="self", prompt="{a} {input.x}"), r"names \{a\}; it has only: input\. Others come with deps"),
        (Task("b", value=1, timeout=cast("Any", "5")), "timeout must be above 0 seconds"),
        (Task("b", value=1, retries=cast("Any", "3")), "retries must be from 0 to 100"),
        (Task("b", value=1, needs_approval="{a}?"), r"names \{a\}"),
        (Approval("b", question="{item}?"), r"names \{item\}"),
        (
            Task("b", agent="self", prompt="b", output_schema={"type": 12}),
            r"is no JSON Schema: \$\.type: 12 is not valid",
        ),
    ],
)
def test_names_and_schemas_are_checked_before_anything_runs(task: Task, told: str) -> None:
    with pytest.raises(FlowError, match=rf"TASK_INVALID: task 'b': .*{told}"):
        Graph(Workflow("work", Sequence(Task("a", value=1), task)))


@pytest.mark.parametrize("ref", ["http://127.0.0.1:PORT/schema", "#/$defs/nothing"])
async def test_a_schema_that_refers_to_something_else_fails_and_nothing_is_fetched(run: MakeRun, ref: str) -> None:
    asked: list[int] = []
    server = await asyncio.start_server(lambda reader, writer: (asked.append(1), writer.close())[0], "127.0.0.1", 0)
    ref = ref.replace("PORT", str(server.sockets[0].getsockname()[1]))
    async with server:
        result = await run(
            Task("a", agent="self", prompt='say {{"n": 1}}', output_schema={"properties": {"n": {"$ref": ref}}})
        )
    told = f"its output_schema refers to '{ref.removeprefix('#')}', which is not in it; nothing is fetched"
    assert (str(result.error), asked) == (f"TASK_INVALID: task 'a': {told}", [])


async def test_items_in_a_branch_that_are_no_list_are_an_error_that_names_the_tasks(run: MakeRun) -> None:
    step = Branch("input.items != null", ForEach("input.items", Sequence(Task("one", value=1), Task("two", value=2))))
    result = await run(step, input={"items": "a,b"})
    assert str(result.error) == "TASK_INVALID: the items of the steps for each (one, two) must be a list, not text"
    assert (await run(step)).status == "completed"


async def test_the_outputs_of_no_items_are_an_empty_list(run: MakeRun, counted: Counted) -> None:
    each = ForEach("input.items", Task("one", value=1))
    after = Branch(
        "one == null", counted.task("nothing"), counted.task("list", lambda inputs: inputs["one"], deps=("one",))
    )
    result = await run(Sequence(each, after), input={"items": []})
    assert (counted.calls, result.outputs["one"], result.outputs["list"]) == (["list"], [], [])


async def test_a_condition_sees_the_outputs_of_items_whose_last_one_was_skipped(run: MakeRun, counted: Counted) -> None:
    each = ForEach((1, 2), Task("one", value=1, skip_if="item == 2"))
    await run(Sequence(each, Branch("one == null", counted.task("unseen"), counted.task("seen"))))
    assert counted.calls == ["seen"]


@pytest.mark.parametrize(
    ("step", "waiting"),
    [
        (Parallel(Task("a", depends_on=("b",)), Task("b"), max_concurrency=1), "a wait"),
        (
            Parallel(
                Sequence(Task("a"), Task("d", depends_on=("e",))),
                Sequence(Task("b", depends_on=("a",)), Task("e")),
                max_concurrency=1,
            ),
            "a, d wait",
        ),
        (
            Parallel(
                Parallel(Task("a", depends_on=("c",)), Task("b"), max_concurrency=1), Task("c", depends_on=("b",))
            ),
            "a wait",
        ),
        (
            Parallel(
                Task("a", depends_on=("d",)), Task("b"), Task("c", depends_on=("d",)), Task("d"), max_concurrency=2
            ),
            "a, c wait",
        ),
    ],
)
def test_steps_that_would_wait_for_one_without_a_place_are_refused(step: Step, waiting: str) -> None:
    with pytest.raises(FlowError, match=rf"TASK_CYCLE.*{waiting} for steps that come after them, and max_concurrency"):
        Graph(Workflow("work", step))


async def test_steps_wait_for_later_ones_while_a_place_is_left(run: MakeRun) -> None:
    step = Parallel(
        Task("a", value=1, depends_on=("b",)),
        Task("b", value=2),
        Task("c", value=3, depends_on=("d", "b")),
        Task("d", value=4),
        Task("e", value=5, depends_on=("a",)),
        max_concurrency=2,
    )
    assert (await run(step)).status == "completed"


def test_many_steps_with_few_places_are_checked_at_once() -> None:
    Graph(Workflow("work", Parallel(*(Task(f"t{number}") for number in range(10_000)), max_concurrency=2)))


async def test_a_task_whose_prompt_a_hook_refuses_fails_with_the_reason(run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "closed.py").write_text(CLOSED)
    result = await run(Task("ask", agent="self", prompt="say yes"), hooks=[{"module": "h", "source": "./closed.py"}])
    assert (result.status, result.outputs) == ("failed", {})
    assert "stopped before an answer: Denied by hook: closed" in str(result.error)


@pytest.mark.parametrize("refusal", [ForkRefused, SpawnRefused])
def test_a_refusal_of_a_plugin_is_not_tried_again_by_its_task(refusal: Any) -> None:
    assert not explain(refusal("s", "there are enough"), "a").is_retryable
