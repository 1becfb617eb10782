"""What bounds a run: time limits that are enforced, budgets, and the answers of earlier runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Barrier, Event
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.plugins import Plugins
from amplifier_foundation.flows.functions import MOST_THREADS
from amplifier_foundation.flows.journal import Entry
from amplifier_foundation.flows.runs import RunResult, run_workflow
from amplifier_foundation.flows.tasks import Loop, Parallel, RetryPolicy, Sequence, Task, Workflow
from amplifier_foundation.sessions.records import new_record

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

    from .conftest import MakeRun

PATIENCE = 30
"""Seconds."""
STUBBORN = """
import asyncio
from amplifier_core import ChatResponse, ProviderInfo, TextBlock

class Stubborn:
    name, priority, asked = "stubborn", 1, 0
    def get_info(self): return ProviderInfo(id="stubborn", display_name="Stubborn")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        Stubborn.asked += 1
        while Stubborn.asked == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
        return ChatResponse(content=[TextBlock(text="at last")])

async def mount(coordinator, config):
    await coordinator.mount("providers", Stubborn())
"""


async def test_an_agent_that_ignores_its_cancellation_is_given_up_when_its_time_is_over(
    make_bundle: Any, store: DurableStore, plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amplifier_foundation.spawning.own_loops.CLEANUP", 0.05)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    prepared = make_bundle("flows", providers=[{"module": "provider-stubborn", "source": "./stubborn.py"}])
    task = Task("a", agent="self", prompt="go", timeout=0.2, retries=50, retry_policy=RetryPolicy(first=0.0))
    result = await run_workflow(Workflow("work", task), prepared, store, plugins, working_dir=tmp_path)
    assert result.outputs == {"a": "at last"}
    entries = [Entry.of_message(each) for each in await store.read(result.run_id)]
    tried = next(each for each in entries if each is not None and each.status == "retried")
    assert tried.error is not None and tried.error["code"] == "TASK_TIMEOUT"


async def test_functions_that_block_hold_up_nothing_and_end_with_their_time_limits(run: MakeRun) -> None:
    begun, goes_on = Barrier(3), Event()

    def block(inputs: Any) -> bool:
        begun.wait(PATIENCE)
        return goes_on.wait(PATIENCE)

    every = Parallel(*(Task(f"a{n}", compute=block, timeout=0.3, retries=0, continue_on_fail=True) for n in range(2)))
    running = asyncio.ensure_future(run(every))
    try:
        await asyncio.to_thread(begun.wait, PATIENCE)  # this loop is free, and both run
        result = await running
    finally:
        goes_on.set()
    assert result.status == "completed"
    assert not any(result.outputs.values())


async def test_a_plain_function_over_its_time_limit_is_not_tried_again_beside_itself(run: MakeRun) -> None:
    goes_on, calls = Event(), []

    def block(inputs: Any) -> None:
        calls.append(1)
        goes_on.wait(PATIENCE)

    try:
        result = await run(Task("a", compute=block, timeout=0.05, retry_policy=RetryPolicy(first=0.0)))
    finally:
        goes_on.set()
    assert (result.status, len(calls)) == ("failed", 1)
    assert "goes on in its thread: it is not tried again" in str(result.error)


async def test_a_plain_function_that_needs_the_loop_is_told_to_be_async(run: MakeRun) -> None:
    for compute in (lambda inputs: asyncio.gather(), lambda inputs: asyncio.get_running_loop()):
        result = await run(Task("a", compute=compute, retry_policy=RetryPolicy(first=0.0)))
        assert "event loop" in str(result.error) and "write it as `async def`" in str(result.error)


async def test_functions_that_never_end_leave_few_threads_and_do_not_stop_the_run(run: MakeRun) -> None:
    goes_on, calls = Event(), []

    def block(inputs: Any) -> None:
        calls.append(1)
        goes_on.wait(PATIENCE)

    options: dict[str, Any] = {"timeout": 0.01, "retry_policy": RetryPolicy(first=0.0), "continue_on_fail": True}
    blocking = Parallel(*(Task(f"a{n}", compute=block, **options) for n in range(3 * MOST_THREADS)))
    try:
        result = await run(Sequence(blocking, Task("b", compute=lambda inputs: 1, retries=0)))
    finally:
        goes_on.set()
    assert MOST_THREADS <= len(calls) < 2 * MOST_THREADS
    assert result.error is not None and "functions go on after their time limits" in str(result.error)


async def test_tasks_that_await_take_no_place_of_a_plain_function(run: MakeRun) -> None:
    woken = asyncio.Event()

    class Waits:
        async def __call__(self, inputs: Any) -> bool:
            return await woken.wait()

    async def wake(inputs: Any) -> None:
        woken.set()

    for compute in (Waits(), lambda inputs: woken.wait()):
        woken.clear()
        tasks = [Task(f"a{n}", compute=compute) for n in range(MOST_THREADS)]
        result = await asyncio.wait_for(run(Parallel(*tasks, Task("b", compute=lambda inputs: wake(inputs)))), PATIENCE)
        assert result.status == "completed"


async def test_a_function_that_stops_itself_fails_as_any_other(run: MakeRun) -> None:
    async def cancel(inputs: Any) -> None:
        waiting = asyncio.ensure_future(asyncio.sleep(60))
        waiting.cancel()
        await waiting

    def leave(inputs: Any) -> None:
        raise SystemExit(3)

    def stop(inputs: Any) -> None:
        next(iter(()))

    said = []
    for function in (cancel, leave, stop):
        result = await run(Task("a", compute=function, retries=0))
        assert (result.status, result.error is not None) == ("failed", True)
        said.append(str(result.error))
    assert "it raised CancelledError, and nobody has cancelled its work" in said[0]
    assert "it called exit(3), which a module may not do" in said[1]
    assert "StopIteration" in said[2]


async def test_the_answer_of_an_earlier_run_that_asked_the_same_is_taken_with_its_history(
    run: MakeRun, store: DurableStore
) -> None:
    async def ask(prompt: str) -> RunResult:
        step = Sequence(
            Task("a", agent="self", prompt=prompt, cache=True),
            Task("b", agent="self", fork="a", prompt="b", cache=True),
            Task("c", agent="self", fork="b", prompt="c"),
        )
        return await run(step)

    first, again, other = await ask("one"), await ask("one"), await ask("two")
    assert first.outputs == again.outputs
    assert again.outputs["c"] == "one > one > b > one > one > b > c"
    assert other.outputs["a"] == "two"
    ids = [each.session_id for each in await store.sessions()]
    assert len([each for each in ids if each.startswith("cached-")]) == 4
    assert [each.startswith("cached-") for each in await sessions_of(store, again)] == [True, True, False]


async def sessions_of(store: DurableStore, result: RunResult) -> list[str]:
    entries = [Entry.of_message(message) for message in await store.read(result.run_id)]
    return [each.session for each in entries if each is not None and each.session is not None]


async def test_two_tasks_that_ask_the_same_at_once_ask_once(run: MakeRun, store: DurableStore) -> None:
    tasks = [Task(name, agent="self", prompt="same", cache=True) for name in "abc"]
    result = await run(Parallel(*tasks))
    assert set(result.outputs.values()) == {"same"}
    assert len(await store.find("cached-")) == 1


async def test_the_budget_of_a_task_counts_all_its_attempts_and_is_not_retried(
    run: MakeRun, store: DurableStore
) -> None:
    task = Task(
        "a", agent="self", prompt="say no", budget={"turns": 2}, output_schema={"type": "array"}, max_schema_retries=5
    )
    result = await run(task)
    assert result.error is not None
    assert "budget of the task 'a'" in str(result.error)
    assert len(await store.find(f"{result.run_id}-a")) == 1


async def test_the_budget_of_the_bundle_counts_all_tasks(
    run: MakeRun, store: DurableStore, make_bundle: Any, plugins: Plugins, tmp_path: Path
) -> None:
    provider = {"module": "provider-echo", "source": str(tmp_path / "echo.py")}
    prepared = make_bundle("tight", providers=[provider], spawn={"budget": {"turns": 2}})
    step = Sequence(*(Task(name, agent="self", prompt=name) for name in "abc"))
    result = await run_workflow(Workflow("work", step), prepared, store, plugins, working_dir=tmp_path)
    assert result.error is not None and result.error.task == "c"
    assert "spawn: {budget: {…}}" in str(result.error)


async def test_attempts_before_a_kill_count(run: MakeRun, store: DurableStore) -> None:
    calls: list[int] = []

    def fail(inputs: Any) -> None:
        calls.append(1)
        raise KeyboardInterrupt if len(calls) == 2 else RuntimeError("no")

    task = Task("a", compute=fail, retries=2, retry_policy=RetryPolicy(first=0.0))
    with pytest.raises(KeyboardInterrupt):
        await run(task)
    [record] = [each for each in await store.sessions() if each.name == "work"]
    result = await run(task, resume=record.session_id)
    assert (result.status, len(calls)) == ("failed", 4)
    [entry] = [
        entry
        for entry in map(Entry.of_message, await store.read(record.session_id))
        if entry is not None and entry.status == "failed"
    ]
    assert entry.attempts == 3


async def test_a_run_without_a_delivery_as_the_last_version_stored_it_goes_on(
    run: MakeRun, store: DurableStore, make_bundle: Any, tmp_path: Path
) -> None:
    prepared = make_bundle("flows", providers=[{"module": "provider-echo", "source": str(tmp_path / "echo.py")}])
    metadata = {"flow": {"name": "work", "input": {"n": 1}}}
    await store.create(new_record(prepared, "work-1", name="work", project=str(tmp_path), metadata=metadata))
    told = {"key": "a", "task": "a", "status": "completed", "output": "kept", "attempts": 1}
    messages = [
        {"role": "user", "content": 'Run work with {"n": 1}'},
        {"role": "assistant", "content": "a: completed\n\nkept", "metadata": {"flow": told}},
    ]
    await store.append("work-1", messages, at=0)  # type: ignore[arg-type]
    await store.update("work-1", status="interrupted")
    step = Sequence(Task("a", value="new"), Loop(Task("b", compute=lambda inputs: inputs["input"]["n"]), until="true"))
    assert (await run(step, resume="work-1")).outputs == {"a": "kept", "b": 1}


TRYING = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolCall, llm_errors

class Trying:
    name, asked = "trying", []
    def get_info(self): return ProviderInfo(id="trying", display_name="Trying")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return response.tool_calls or []
    async def complete(self, request, **kwargs):
        Trying.asked.append(str(request.messages[-1].content))
        step = ["call", "break", "answer"][min(len(Trying.asked), 3) - 1]
        if step == "break":
            raise KINDS[KIND]("it said no", provider="trying")
        calls = [ToolCall(id="c1", name="note", arguments={"text": "one"})] if step == "call" else []
        return ChatResponse(content=[TextBlock(text="" if calls else "done")], tool_calls=calls)

KINDS = {"out": llm_errors.ProviderUnavailableError, "key": llm_errors.AuthenticationError}

class Note:
    name, description, input_schema = "note", "Notes.", {"type": "object"}
    async def execute(self, input): return "noted"

async def mount(coordinator, config):
    coordinator.register_capability("tests.asked", Trying.asked)
    await coordinator.mount("providers", Trying())
    await coordinator.mount("tools", Note())
"""


async def run_trying(
    kind: str, make_bundle: Any, store: DurableStore, plugins: Plugins, folder: Path, task: Task
) -> RunResult:
    (folder / "trying.py").write_text(TRYING.replace("KINDS[KIND]", f"KINDS[{kind!r}]"))
    prepared = make_bundle("flows", providers=[{"module": "provider-trying", "source": "./trying.py"}])
    return await run_workflow(Workflow("work", task), prepared, store, plugins, working_dir=folder)


async def test_the_next_attempt_is_told_which_tools_the_failed_one_has_called(
    make_bundle: Any, store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    task = Task("a", agent="self", prompt="go", retry_policy=RetryPolicy(first=0.0))
    result = await run_trying("out", make_bundle, store, plugins, tmp_path, task)
    assert result.outputs == {"a": "done"}
    [second] = [each for each in await store.sessions() if each.session_id.endswith("-a-2")]
    prompt = str((await store.read(second.session_id))[0]["content"])
    assert prompt.startswith("go\n\nAn earlier attempt has failed after these tool calls")
    assert '- → note {"text": "one"}' in prompt


async def test_a_wrong_key_is_not_tried_again(
    make_bundle: Any, store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    task = Task("a", agent="self", prompt="go", retries=5)
    result = await run_trying("key", make_bundle, store, plugins, tmp_path, task)
    assert result.error is not None and "it said no" in str(result.error)
    assert len(await store.find(f"{result.run_id}-a")) == 1


def test_an_entry_of_a_later_version_is_read_without_what_is_unknown() -> None:
    message = Entry("a", "a", "completed", output=1).to_message()
    message["metadata"]["flow"]["later"] = 1
    assert Entry.of_message(message) == Entry("a", "a", "completed", output=1)
    assert Entry.of_message({"role": "assistant", "content": "", "metadata": {"flow": {"later": 1}}}) is None
