"""Run a workflow: every task when what it waits for is done, and none twice.

A run is made again from its journal: the steps are taken in the same way, and what the journal knows is not done again.
A task waits for the results of others in its own iteration; from outside of a loop, for the loop's last ones.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.conditions import Condition
from amplifier_core.frozen import frozen

from ..bundle.templates import fill_names
from ..documents.dicts import at_path
from .errors import (
    FAILED,
    FORK_SESSION_UNAVAILABLE,
    FORK_SOURCE_NOT_COMPLETE,
    FORK_SOURCE_NOT_FOUND,
    INVALID,
    LOOP_EXHAUSTED,
    TIMEOUT,
    FlowError,
)
from .graph import tasks_of
from .journal import Entry
from .tasks import Branch, ForEach, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from .graph import Graph
    from .journal import Journal
    from .tasks import Step, Test

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
        """Return the answer; an attempt that was begun before goes on. Raises `FlowError`, and any other error."""
        ...


class Scope:
    """The results of one iteration of a body; what is not in it is in a scope around it.

    `body` is the number of the body in the graph, `suffix` that of the keys: `#2` in the second iteration.
    """

    def __init__(self, above: Scope | None = None, body: int | None = None, suffix: str = "", **inputs: Any) -> None:
        self.chain: tuple[Scope, ...] = (*(above.chain if above is not None else ()), self)
        """The scopes from the outside in, this one included."""
        self.bodies: tuple[int, ...] = (*(above.bodies if above is not None else ()), *([body] if body else []))
        self.suffix = suffix
        self.inputs: dict[str, Any] = {**(above.inputs if above is not None else {}), **inputs}
        self._slots: dict[str, asyncio.Future[Entry]] = {}
        self._outputs: dict[str, Any] = {}
        """The outputs of the completed tasks."""

    def slot(self, task: str) -> asyncio.Future[Entry]:
        """Return the future result of a task in this scope."""
        if task not in self._slots:
            self._slots[task] = asyncio.get_running_loop().create_future()
        return self._slots[task]

    def settle(self, entry: Entry) -> None:
        """Have a result, for all that wait."""
        slot = self.slot(entry.task)
        if not slot.done():
            slot.set_result(entry)
            if entry.status == "completed":
                self._outputs[entry.task] = entry.output

    def known(self) -> dict[str, Any]:
        """Return the outputs so far, those of the scopes around it included."""
        found: dict[str, Any] = {}
        for scope in self.chain:
            found |= scope._outputs
        return found


class Engine:
    """One run of the workflow of a graph. `input` are the inputs that it was given.

    `tell` is called with the key of each task when an attempt begins, and with its entry when that is durable.
    """

    def __init__(
        self,
        graph: Graph,
        journal: Journal,
        turns: Turns,
        input: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._graph = graph
        self._journal = journal
        self._turns = turns
        self._clock = clock or SystemClock()
        self._input = {**graph.workflow.input, **(input or {})}
        self._tell = tell or (lambda key, entry: None)

    async def run(self) -> dict[str, Any]:
        """Run all tasks, and return their outputs by id. Raises `FlowError` of the first task that fails for good."""
        top = Scope(input=self._input)
        try:
            await self._take(self._graph.workflow.step, top)
        except BaseExceptionGroup as group:
            raise _first_of(group) from None
        return {name: top.slot(name).result().output for name in self._graph.places if top.slot(name).done()}

    async def _take(self, step: Step, scope: Scope) -> None:
        if isinstance(step, Task):
            await self._take_task(step, scope)
        elif isinstance(step, Sequence):
            for each in step.steps:
                await self._take(each, scope)
        elif isinstance(step, Parallel):
            await self._take_all([(each, scope) for each in step.steps], step.max_concurrency)
        elif isinstance(step, Branch):
            await self._take_branch(step, scope)
        elif isinstance(step, Loop):
            await self._take_loop(step, scope)
        else:
            await self._take_each(step, scope)

    async def _take_all(self, steps: list[tuple[Step, Scope]], most: int | None) -> None:
        """Take steps side by side; the failure of one ends the others."""
        places = asyncio.Semaphore(most) if most else None

        async def take(step: Step, scope: Scope) -> None:
            async with AsyncExitStack() as stack:
                if places is not None:
                    await stack.enter_async_context(places)
                await self._take(step, scope)

        async with asyncio.TaskGroup() as group:
            for step, scope in steps:
                group.create_task(take(step, scope))

    async def _take_branch(self, branch: Branch, scope: Scope) -> None:
        first = next(tasks_of(branch), None)
        key = f"branch:{first.id if first is not None else ''}{scope.suffix}"
        holds = await self._decide(key, branch.condition, scope)
        taken, left = (branch.then, branch.otherwise) if holds else (branch.otherwise, branch.then)
        for task in tasks_of(left):
            scope.settle(Entry(task.id + scope.suffix, task.id, "absent"))
        if taken is not None:
            await self._take(taken, scope)

    async def _take_loop(self, loop: Loop, scope: Scope) -> None:
        for iteration in range(1, loop.max_iterations + 1):
            inner = Scope(scope, self._graph.number_of(loop), f"{scope.suffix}#{iteration}", iteration=iteration)
            await self._take(loop.body, inner)
            key = f"loop:{next(tasks_of(loop.body)).id}{inner.suffix}"
            if await self._decide(key, loop.until, inner):
                break
        else:
            if loop.on_max_reached == "fail":
                names = ", ".join(task.id for task in tasks_of(loop.body))
                raise FlowError(LOOP_EXHAUSTED, f"the loop of {names} ended after {loop.max_iterations} iterations")
        _export(loop.body, [inner], scope)

    async def _decide(self, key: str, test: Test, scope: Scope) -> bool:
        """Return the answer of a test in the journal, or test now and write it there: it is the same in each run."""
        entry = self._journal.find(key)
        if entry is None:
            entry = Entry(key, key, "chosen", output=self._test(test, scope))
            await self._journal.write(entry)
        return bool(entry.output)

    async def _take_each(self, each: ForEach, scope: Scope) -> None:
        found = each.items
        if callable(found):
            found = found(self._see(scope))
        elif isinstance(found, str):
            found = at_path(self._see(scope), found.split("."))
        if not isinstance(found, list | tuple):
            raise FlowError(INVALID, f"the items of a ForEach must be a list, not {type(found).__name__}")
        body = self._graph.number_of(each)
        inner = [Scope(scope, body, f"{scope.suffix}#{number}", item=item) for number, item in enumerate(found, 1)]
        await self._take_all([(each.body, one) for one in inner], each.max_concurrency)
        _export(each.body, inner, scope, gathers=True)

    # one task

    async def _take_task(self, task: Task, scope: Scope) -> None:
        key = task.id + scope.suffix
        entry = self._journal.find(key)
        if entry is None or (entry.error is not None and not task.continue_on_fail):
            entry = await self._do(task, key, scope, entry.attempts if entry is not None else 0)
            await self._journal.write(entry)
            self._tell(key, entry)
        scope.settle(entry)
        if entry.error is not None and not task.continue_on_fail:
            raise FlowError.from_dict(entry.error)

    async def _do(self, task: Task, key: str, scope: Scope, attempt: int) -> Entry:
        """Return the result of a task, when all that it waits for is done; `attempt` were made in an earlier run."""
        inputs = await self._gather(task, scope)
        source = await self._find(task.fork, scope) if task.fork is not None else None
        if task.skip_if is not None and self._test(task.skip_if, scope, inputs):
            return Entry(key, task.id, "skipped")
        last = attempt + task.retries + 1
        while True:
            attempt += 1
            self._tell(key, None)
            try:
                output, session = await self._attempt(task, key, attempt, inputs, source)
            except Exception as error:
                failure = _explain(error, task)
                if not failure.is_retryable or attempt >= last:
                    return Entry(key, task.id, "failed", attempts=attempt, error=failure.to_dict())
                policy = task.retry_policy
                pause = min(policy.longest, policy.first * policy.factor ** (task.retries + attempt - last))
                await self._clock.sleep(random.uniform(0, pause))
            else:
                return Entry(key, task.id, "completed", output, session, attempt)

    async def _attempt(
        self, task: Task, key: str, attempt: int, inputs: dict[str, Any], source: Entry | None
    ) -> tuple[Any, str | None]:
        if task.agent is not None:
            session = _session_of(task, source) if source is not None else None
            request = TurnRequest(task, key, attempt, _fill(task, inputs), session)
            result = await self._turns.take(request)
            return result.output, result.session
        if task.compute is None:
            return task.value, None
        async with _time_limit(task):
            output = task.compute(inputs)
            return (await output if inspect.isawaitable(output) else output), None

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
        """Wait for the result of a task, as it is seen from a scope."""
        common = 0
        for here, there in zip(scope.bodies, self._graph.places[name].bodies, strict=False):
            if here != there:
                break
            common += 1
        return await asyncio.shield(scope.chain[common].slot(name))

    # what tasks and conditions see

    def _see(self, scope: Scope) -> dict[str, Any]:
        return {**scope.known(), **scope.inputs}

    def _test(self, test: Test, scope: Scope, inputs: Mapping[str, Any] | None = None) -> bool:
        seen = {**self._see(scope), **(inputs or {})}
        return Condition.parse(test).holds(seen) if isinstance(test, str) else bool(test(seen))


def _export(body: Step, inner: list[Scope], outer: Scope, *, gathers: bool = False) -> None:
    """Have the last results of a body outside of it; of side by side ones, the outputs are a list."""
    for task in tasks_of(body):
        entries = [scope.slot(task.id).result() for scope in inner]
        if not entries:
            outer.settle(Entry(task.id, task.id, "absent"))
        elif gathers:
            outer.settle(replace(entries[-1], output=[each.output for each in entries]))
        else:
            outer.settle(entries[-1])


def _session_of(task: Task, source: Entry) -> str:
    """Return the session that a task forks. Raises `FlowError` where its source has none."""
    fork = str(task.fork)
    if source.status == "absent":
        raise FlowError(FORK_SOURCE_NOT_FOUND, f"'{fork}' is in a branch that was not taken", task.id, fork)
    if source.status == "failed":
        raise FlowError(FORK_SOURCE_NOT_COMPLETE, f"'{fork}' has failed", task.id, fork)
    if source.session is None:
        what = "was skipped" if source.status == "skipped" else "is no agent's"
        raise FlowError(FORK_SESSION_UNAVAILABLE, f"'{fork}' {what}, and has no session", task.id, fork)
    return source.session


def _fill(task: Task, inputs: dict[str, Any]) -> str:
    """Return the prompt of a task. Raises `FlowError` for a name that is no input."""
    if callable(task.prompt):
        return task.prompt(inputs)
    try:
        return fill_names(task.prompt, inputs)
    except KeyError as error:
        known = ", ".join(sorted(inputs))
        message = f"its prompt names {{{error.args[0]}}}; it has only: {known}. Others come with deps and needs"
        raise FlowError(INVALID, message, task.id) from None


@asynccontextmanager
async def _time_limit(task: Task) -> AsyncIterator[None]:
    limit = asyncio.timeout(task.timeout)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FlowError(TIMEOUT, f"it took longer than {task.timeout:g} s", task.id, is_retryable=True) from None


def _explain(error: Exception, task: Task) -> FlowError:
    """Return an error as that of a task. What can only fail again is not retried: a wrong key, a spent budget."""
    from amplifier_core.errors import BudgetExceeded, SpawnRefused, SpawnTimeout

    from ..sessions.failures import describe_failure, find_provider_error

    if isinstance(error, FlowError):
        return FlowError(error.code, error.reason, error.task or task.id, error.source, is_retryable=error.is_retryable)
    if isinstance(error, SpawnTimeout):
        return FlowError(TIMEOUT, str(error), task.id, is_retryable=True)
    problem = find_provider_error(error)
    if problem is not None:
        return FlowError(FAILED, describe_failure(error), task.id, is_retryable=problem.retryable)
    is_final = isinstance(error, BudgetExceeded | SpawnRefused)
    return FlowError(FAILED, describe_failure(error), task.id, is_retryable=not is_final)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a task in a group; without one, what else is in it."""
    errors = list(_leaves(group))
    return next((each for each in errors if isinstance(each, FlowError)), errors[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
