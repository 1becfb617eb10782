"""The description of a workflow as plain data, its digest, and its place in a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from amplifier_foundation.flows.description import describe_workflow, digest_of, find_description
from amplifier_foundation.flows.drawing import draw_text
from amplifier_foundation.flows.runs import fork_run
from amplifier_foundation.flows.tasks import Branch, ForEach, Loop, Parallel, Sequence, Step, Task, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.storage import DurableStore

    from .conftest import MakeRun

pytestmark = pytest.mark.slow


class Verdict(BaseModel):
    done: bool


class Limit:
    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, inputs: Any) -> bool:
        return inputs["n"] in {"one", "two", "three"} or inputs["n"] > self.most


def above(most: int) -> Callable[[Any], bool]:
    return lambda inputs: inputs["n"] > most


def described(step: Step) -> Any:
    return describe_workflow(Workflow("work", step))["steps"]


def digest(step: Step) -> str:
    return digest_of(describe_workflow(Workflow("work", step)))


def test_a_description_has_the_keys_of_a_bundle_and_leaves_out_what_is_as_usual() -> None:
    step = Sequence(
        Task("plan", agent="planner", prompt="Plan", needs={"of": "goal"}, timeout=5),
        Parallel(Task("goal", value=[1]), Sequence(Task("a", value=1), Task("b", value=2)), max_concurrency=2),
        Loop(Task("c", agent="self", fork="plan", output_schema=Verdict), "c.done", 3),
        Branch("c.done", Task("d", value=1), Task("e", value=2)),
        ForEach(("x", "y"), Task("f", agent="self", prompt="{item}", skip_if="item == 'x'")),
    )
    schema = Verdict.model_json_schema()
    loop = {"loop": [{"id": "c", "agent": "self", "fork": "plan", "output_schema": schema}], "until": "c.done"}
    each = {"id": "f", "agent": "self", "prompt": "{item}", "skip_if": "item == 'x'"}
    first, second = {"id": "a", "value": 1}, {"id": "b", "value": 2}
    assert described(step) == [
        {"id": "plan", "agent": "planner", "prompt": "Plan", "needs": {"of": "goal"}, "timeout": 5},
        {"parallel": [{"id": "goal", "value": [1]}, {"sequence": [first, second]}], "max_concurrency": 2},
        {**loop, "max_iterations": 3, "on_max_reached": "fail"},
        {"if": "c.done", "then": [{"id": "d", "value": 1}], "else": [{"id": "e", "value": 2}]},
        {"for_each": ["x", "y"], "do": [each]},
    ]


def test_another_kind_of_task_has_its_kind_and_its_own_fields() -> None:
    @dataclass(frozen=True)
    class Question(Task):
        text: str = ""

    description = describe_workflow(Workflow("work", Question("ask", text="Publish?")))
    assert description["steps"] == [{"kind": "question", "id": "ask", "text": "Publish?"}]
    assert list(draw_text(description)) == ["work", "└─ ask  (question)"]


def test_a_function_is_its_name_and_the_hash_of_its_code() -> None:
    [task] = described(Task("a", compute=above(1)))
    assert task["compute"]["function"] == "above.<locals>.<lambda>"
    assert digest(Task("a", compute=above(1))) == digest(Task("a", compute=above(1)))
    changed = [above(2), lambda inputs: inputs["n"] >= 1, partial(above(1), {"n": 1}), Limit(1), Limit(2), len]
    digests = [digest(Task("a", compute=each)) for each in (above(1), *changed)]
    assert len(set(digests)) == len(digests)


def test_a_call_and_another_line_change_no_digest() -> None:
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, before in zip(spaces, ("", "\n\n# more\n"), strict=True):
        exec(
            compile(f"{before}def work(inputs):\n    return inputs['n'] + 1\n", f"/tmp/{len(before)}.py", "exec"), space
        )
    first, second = (space["work"] for space in spaces)
    before = digest(Task("a", compute=first))
    assert [first({"n": each}) for each in range(100)] == list(range(1, 101))
    assert before == digest(Task("a", compute=first)) == digest(Task("a", compute=second))


@pytest.mark.parametrize("change", [{"prompt": "Other"}, {"agent": "coder"}, {"retries": 1}, {"fork": "b"}])
def test_any_other_task_has_another_digest(change: dict[str, Any]) -> None:
    usual = {"agent": "self", "prompt": "Do it."}
    assert digest(Task("a", **usual)) != digest(Task("a", **{**usual, **change}))


def test_a_digest_is_the_same_in_every_process() -> None:
    code = (
        "from tests.foundation.flows.test_description import *\n"
        "print(digest(Sequence(Task('a', compute=Limit(1)), Task('b', value={'x', 'y', 'z'}), Task('c', value=Limit))))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert len({each.stdout for each in runs}) == 1
    assert "0x" not in json.dumps(described(Task("a", value=[object(), Limit(1)])))


def test_ten_thousand_tasks_are_described_as_json() -> None:
    tasks = [Task(f"t{each}", agent="self", prompt=f"Do {each}", skip_if=above(each)) for each in range(10_000)]
    steps = described(Sequence(*tasks))
    assert json.loads(json.dumps(steps)) == steps
    assert len({step["skip_if"]["code"] for step in steps}) == 10_000


async def test_a_run_and_its_forks_have_the_description_in_their_first_message(
    run: MakeRun, store: DurableStore
) -> None:
    result = await run(Sequence(Task("a", value=1), Task("b", value=float("inf"), compute=lambda inputs: 2)))
    record = await store.get(result.run_id)
    found = find_description(await store.read(result.run_id, 0, 1))
    assert found is not None
    assert [step["id"] for step in found["steps"]] == ["a", "b"]
    assert record.metadata["flow"]["digest"] == digest_of(found)
    fork = await fork_run(store, record, "b")
    assert find_description(await store.read(fork.session_id, 0, 1)) == found


async def test_a_secret_in_a_workflow_is_not_stored(run: MakeRun, store: DurableStore) -> None:
    key = "sk-" + "a1" * 20
    result = await run(Task("a", compute=lambda inputs: 1, value={"key": key, "text": f"it is {key}"}))
    [task] = (find_description(await store.read(result.run_id)) or {})["steps"]
    assert task["value"] == {"key": "[REDACTED]", "text": "it is [REDACTED]"}


@pytest.mark.parametrize("metadata", [{}, {"workflow": "feature"}, {"workflow": {"steps": 1}}])
def test_a_run_of_an_older_version_has_none(metadata: Any) -> None:
    assert find_description([{"role": "user", "content": "Run work", "metadata": metadata}]) is None
    assert find_description([]) is None


def test_what_a_function_has_counted_changes_no_digest() -> None:
    calls: list[int] = []
    count = 0

    def work(inputs: Any) -> int:
        nonlocal count
        count += 1
        calls.append(count)
        return count

    before = digest(Task("a", compute=work))
    work({})
    assert digest(Task("a", compute=work)) == before
