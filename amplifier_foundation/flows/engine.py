"""Run a workflow: every task when what it waits for is done, and none twice.

A run is made again from its journal: the steps are taken in the same way, and what the journal knows is not done again.
A task waits for the results of others in its own iteration; from outside of a loop, for the loop's last ones.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.cancellation import as_failure
from amplifier_core.clock import Clock, SystemClock
from amplifier_core.conditions import Condition
from amplifier_core.frozen import frozen

from ..bundle.templates import fill_names
from ..documents.dicts import at_path
from .errors import (
    DENIED,
    FORK_SESSION_UNAVAILABLE,
    FORK_SOURCE_NOT_COMPLETE,
    FORK_SOURCE_NOT_FOUND,
    INVALID,
    LOOP_EXHAUSTED,
    FlowError,
)
from .failures import call, explain, first_of
from .functions import Functions
from .graph import describe_unknown, tasks_of
from .journal import WAITING, Entry
from .outputs import as_stored
from .scopes import Scope, export, hold_step
from .tasks import Approval, Branch, ForEach, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..bundle.untrusted_text import Fences
    from .graph import Graph
    from .journal import Journal
    from .tasks import Prompt, Step, Test

    Tell = Callable[[str, Entry | None], None]


@frozen
class TurnRequest:
    """What an agent is asked in one attempt: `source` is the session that its own one begins with."""

    task: Task
    key: str
    attempt: int
    prompt: str
    source: str | None = None


@frozen
class TurnResult:
    """The answer of an agent, and its session."""

    output: Any
    session: str


class Turns(Protocol):
    """Takes the turns of agents."""

    async def take(self, request: TurnRequest) -> TurnResult:
        """Return the answer; an attempt that was begun before goes on.

        Raises `Held` while a call of the agent waits for a person, `FlowError`, and any other error.
        """
        ...


class Approvals(Protocol):
    """Asks people."""

    async def ask(self, key: str, task: Task, question: str) -> dict[str, Any] | None:
        """Return whether a person has `approved`, and what was `said`; None: the question waits for an answer."""
        ...


class Held(Exception):
    """A task waits for a person, or for a task that does."""


class Engine:
    """One run of the workflow of a graph. `input` are the inputs that it was given.

    `tell` is called with the key of each task when an attempt begins, and with its entry when that is durable, or
    waits. `fences` makes those around the input in a prompt, when strangers wrote the input.
    """

    def __init__(
        self,
        graph: Graph,
        journal: Journal,
        turns: Turns,
        approvals: Approvals,
        input: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        tell: Tell | None = None,
        fences: Callable[[], Fences] | None = None,
    ) -> None:
        self._graph = graph
        self._journal = journal
        self._turns = turns
        self._approvals = approvals
        self._fences = fences
        self._causes: dict[str, Exception] = {}
        """What failed tasks have failed with in this process, by their keys."""
        self._functions = Functions()
        self._clock = clock or SystemClock()
        self._input = {**graph.workflow.input, **(input or {})}
        self._tell = tell or (lambda key, entry: None)

    async def run(self) -> tuple[dict[str, Any], bool]:
        """Run all tasks; return their outputs by id, and whether some wait for a person.

        Raises `FlowError` of the first task that fails for good.
        """
        top = Scope(input=self._input)
        try:
            is_done = await self._take(self._graph.workflow.step, top)
        except BaseExceptionGroup as group:
            error = first_of(group)
            raise error from error.__cause__
        found = {name: top.slot(name).result() for name in self._graph.places if top.slot(name).done()}
        return {name: entry.output for name, entry in found.items() if entry.status != WAITING}, not is_done

    async def _take(self, step: Step, scope: Scope) -> bool:
        """Return whether a step is done, else something in it waits for a person."""
        if isinstance(step, Task):
            return await self._take_task(step, scope)
        if isinstance(step, Sequence):
            return await self._take_sequence(step, scope)
        if isinstance(step, Parallel):
            return await self._take_all([(each, scope) for each in step.steps], step.max_concurrency)
        if isinstance(step, Branch):
            return await self._take_branch(step, scope)
        if isinstance(step, Loop):
            return await self._take_loop(step, scope)
        return await self._take_each(step, scope)

    async def _take_sequence(self, sequence: Sequence, scope: Scope) -> bool:
        steps = iter(sequence.steps)
        for step in steps:
            if not await self._take(step, scope):
                for left in steps:
                    hold_step(left, scope)
                return False
        return True

    async def _take_all(self, steps: list[tuple[Step, Scope]], most: int | None) -> bool:
        """Take steps side by side; the failure of one ends the others."""
        places = asyncio.Semaphore(most) if most else None

        async def take(step: Step, scope: Scope) -> bool:
            async with AsyncExitStack() as stack:
                if places is not None:
                    await stack.enter_async_context(places)
                return await self._take(step, scope)

        async with asyncio.TaskGroup() as group:
            taken = [group.create_task(take(step, scope)) for step, scope in steps]
        return all(each.result() for each in taken)

    async def _take_branch(self, branch: Branch, scope: Scope) -> bool:
        where = f"the condition of the branch of {', '.join(task.id for task in tasks_of(branch))}"
        holds = await self._decide(f"{self._graph.key_of(branch)}{scope.suffix}", branch.condition, scope, where)
        taken, left = (branch.then, branch.otherwise) if holds else (branch.otherwise, branch.then)
        for task in tasks_of(left):
            scope.settle(Entry(task.id + scope.suffix, task.id, "absent"))
        return taken is None or await self._take(taken, scope)

    async def _take_loop(self, loop: Loop, scope: Scope) -> bool:
        names = ", ".join(task.id for task in tasks_of(loop.body))
        for iteration in range(1, loop.max_iterations + 1):
            inner = Scope(scope, self._graph.number_of(loop), f"{scope.suffix}#{iteration}", iteration=iteration)
            if not await self._take(loop.body, inner):
                hold_step(loop.body, scope)
                return False
            key = f"loop:{next(tasks_of(loop.body)).id}{inner.suffix}"
            if await self._decide(key, loop.until, inner, f"`until` of the loop of {names}"):
                break
        else:
            if loop.on_max_reached == "fail":
                raise FlowError(LOOP_EXHAUSTED, f"the loop of {names} ended after {loop.max_iterations} iterations")
        export(loop.body, [inner], scope)
        return True

    async def _decide(self, key: str, test: Test, scope: Scope, where: str) -> bool:
        """Return the answer of a test in the journal, or test now and write it there: it is the same in each run."""
        entry = self._journal.find(key)
        if entry is None:
            entry = Entry(key, key, "chosen", output=_test(test, self._see(scope), where))
            await self._journal.write(entry)
        return bool(entry.output)

    async def _take_each(self, each: ForEach, scope: Scope) -> bool:
        found, names = each.items, ", ".join(task.id for task in tasks_of(each.body))
        if callable(found):
            found = call(found, self._see(scope), f"the items of the ForEach of {names}")
        elif isinstance(found, str):
            found = at_path(self._see(scope), found.split("."))
        if not isinstance(found, list | tuple):
            from ..documents.validation import describe_kind

            raise FlowError(
                INVALID, f"the items of the steps for each ({names}) must be a list, not {describe_kind(found)}"
            )
        body = self._graph.number_of(each)
        inner = [Scope(scope, body, f"{scope.suffix}#{number}", item=item) for number, item in enumerate(found, 1)]
        if not await self._take_all([(each.body, one) for one in inner], each.max_concurrency):
            hold_step(each.body, scope)
            return False
        export(each.body, inner, scope, gathers=True)
        return True

    # one task

    async def _take_task(self, task: Task, scope: Scope) -> bool:
        key = task.id + scope.suffix
        entry = self._journal.find(key)
        if entry is None or entry.status == "retried" or (entry.error is not None and not task.continue_on_fail):
            attempts = entry.attempts if entry is not None else 0
            try:
                entry = await self._do(task, key, scope, entry)
            except Held:
                entry = Entry(key, task.id, WAITING)
            except FlowError as error:  # of its `skip_if`, or of its question
                self._causes[key] = error
                entry = Entry(key, task.id, "failed", attempts=attempts, error=explain(error, task.id).to_dict())
            if entry.status != WAITING:
                await self._journal.write(entry)
            self._tell(key, entry)
        scope.settle(entry)
        if entry.error is not None and not task.continue_on_fail:
            raise FlowError.from_dict(entry.error) from self._causes.get(key)
        return entry.status != WAITING

    async def _do(self, task: Task, key: str, scope: Scope, before: Entry | None) -> Entry:
        """Return the result of a task, when all that it waits for is done. `before` has its attempts so far."""
        inputs = await self._gather(task, scope)
        source = await self._find(task.fork, scope) if task.fork is not None else None
        if task.skip_if is not None and _test(task.skip_if, {**self._see(scope), **inputs}, "`skip_if`", task.id):
            return Entry(key, task.id, "skipped")
        if task.needs_approval or isinstance(task, Approval):
            answer = await self._ask(task, key, inputs)
            if not answer["approved"] and getattr(task, "on_deny", "fail") == "fail":
                said = f": {answer['said']}" if answer["said"] else ""
                failure = FlowError(DENIED, f"it was denied{said}", task.id)
                return Entry(key, task.id, "failed", error=failure.to_dict())
            if isinstance(task, Approval):
                return Entry(key, task.id, "completed", answer)
        return await self._try(task, key, inputs, source, before)

    async def _try(
        self, task: Task, key: str, inputs: dict[str, Any], source: Entry | None, before: Entry | None
    ) -> Entry:
        """Attempt a task until it succeeds or fails for good. Each failed attempt is durable: a kill adds none."""
        attempt = before.attempts if before is not None else 0
        begun = before.output["after"] if before is not None and before.status == "retried" else attempt
        while True:
            attempt += 1
            self._tell(key, None)
            try:
                output, session = await self._attempt(task, key, attempt, inputs, source)
                return Entry(key, task.id, "completed", output, session, attempt)
            except Held:
                raise
            except Exception as error:
                self._causes[key], failure = error, explain(error, task.id)
                tries = attempt - begun
                if not failure.is_retryable or tries > task.retries:
                    return Entry(key, task.id, "failed", attempts=attempt, error=failure.to_dict())
                about = {"after": begun}
                tried = Entry(key, task.id, "retried", about, attempts=attempt, error=failure.to_dict())
            await self._journal.write(tried)
            self._tell(key, tried)
            policy = task.retry_policy
            pause = min(policy.longest, policy.first * policy.factor ** (tries - 1))
            await self._clock.sleep(random.uniform(0, pause))

    async def _ask(self, task: Task, key: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return a person's answer, durable in the journal. Raises `Held` without one."""
        kept = f"approval:{key}"
        entry = self._journal.find(kept)
        if entry is None:
            asked = task.question if isinstance(task, Approval) else task.needs_approval
            question = self._fill(asked, task, inputs) if asked and asked is not True else f"Run the task '{task.id}'?"
            answer = await self._approvals.ask(key, task, question)
            if answer is None:
                raise Held(key)
            entry = Entry(kept, task.id, "chosen", output=answer)
            await self._journal.write(entry)
        found: dict[str, Any] = entry.output
        return found

    async def _attempt(
        self, task: Task, key: str, attempt: int, inputs: dict[str, Any], source: Entry | None
    ) -> tuple[Any, str | None]:
        if task.agent is not None:
            session = _session_of(task, source) if source is not None else None
            request = TurnRequest(task, key, attempt, self._fill(task.prompt, task, inputs), session)
            result = await self._turns.take(request)
            return result.output, result.session
        if task.compute is None:
            return as_stored(task.value, task.id), None
        try:
            output = await self._functions.call(task, inputs)
        except (asyncio.CancelledError, SystemExit) as error:
            raise as_failure(error) from None
        return as_stored(output, task.id), None

    async def _gather(self, task: Task, scope: Scope) -> dict[str, Any]:
        """Wait for what a task depends on, and return its inputs."""
        inputs = dict(scope.inputs)
        for name in task.depends_on:
            await self._find(name, scope)
        named = {**{name: name for name in task.deps}, **task.needs}
        for name, other in named.items():
            inputs[name] = (await self._find(other, scope)).output
        return inputs

    async def _find(self, name: str, scope: Scope) -> Entry:
        """Wait for the result of a task, as it is seen from a scope. Raises `Held` when that waits for a person."""
        common = 0
        for here, there in zip(scope.bodies, self._graph.places[name].bodies, strict=False):
            if here != there:
                break
            common += 1
        entry = await asyncio.shield(scope.chain[common].slot(name))
        if entry.status == WAITING:
            raise Held(name)
        return entry

    # what tasks and conditions see

    def _see(self, scope: Scope) -> dict[str, Any]:
        return {**scope.known(), **scope.inputs}

    def _fill(self, prompt: Prompt, task: Task, inputs: dict[str, Any]) -> str:
        """Return a prompt with its names filled in. Raises `FlowError` for a name that is no input."""
        if callable(prompt):
            text = call(prompt, inputs, "its prompt", task.id)
            if not isinstance(text, str):
                raise FlowError(INVALID, f"its prompt must be text, not {type(text).__name__}", task.id)
            return text
        try:
            return fill_names(prompt, inputs, self._fences() if self._fences is not None else None)
        except KeyError as error:
            raise FlowError(INVALID, describe_unknown(error.args[0], inputs), task.id) from None


def _test(test: Test, seen: Mapping[str, Any], where: str, task: str = "") -> bool:
    return Condition.parse(test).holds(seen) if isinstance(test, str) else bool(call(test, seen, where, task))


def _session_of(task: Task, source: Entry) -> str:
    """Return the session that a task forks. Raises `FlowError` where its source has none."""
    fork = str(task.fork)
    if source.status == "absent":
        where = "has run for no item" if source.output == [] else "is in a branch that was not taken"
        raise FlowError(FORK_SOURCE_NOT_FOUND, f"'{fork}' {where}", task.id, fork)
    if source.status == "failed":
        raise FlowError(FORK_SOURCE_NOT_COMPLETE, f"'{fork}' has failed", task.id, fork)
    if source.session is None:
        what = "was skipped" if source.status == "skipped" else "is no agent's"
        raise FlowError(FORK_SESSION_UNAVAILABLE, f"'{fork}' {what}, and has no session", task.id, fork)
    return source.session
