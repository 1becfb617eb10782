"""Check a workflow before it runs: every name is known, and nothing waits for itself."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.conditions import Condition, ConditionError

from ..bundle.templates import names_in
from ..documents.problems import did_you_mean
from ..spawning.budget import Limits
from .errors import (
    CYCLE,
    DEPENDENCY_NOT_FOUND,
    FORK_CYCLE,
    FORK_SESSION_UNAVAILABLE,
    FORK_SOURCE_NOT_FOUND,
    INVALID,
    FlowError,
)
from .outputs import as_stored
from .tasks import Approval, Branch, ForEach, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .tasks import Step, Test, Workflow

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_RESERVED = {"input", "item", "iteration"}
"""Names of inputs that are no tasks."""
MOST_NAMED = 10
"""Names in an error, at most."""


class Place(NamedTuple):
    """Where a task stands: the bodies of loops around it, from the outside in, by their numbers."""

    task: Task
    bodies: tuple[int, ...]


class Graph:
    """The tasks of a workflow, by their ids."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.places: dict[str, Place] = {}
        self._edges: dict[int, list[tuple[int, str]]] = {}
        """What follows each node, with the task whose fork made the edge."""
        self._nodes: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        """The last node of each body of a loop."""
        self._numbers: dict[int, int] = {}
        self._branches: dict[int, str] = {}
        self._around: Counter[str] = Counter()
        self._limited: list[tuple[int, list[range]]] = []
        """Of each parallel with fewer places than steps: the places, and the nodes of its steps."""
        self._tests: list[tuple[str, list[str], bool, Task | None]] = []
        """Each condition and path of a list, the names in it, whether it is in a loop, and the task that it is of."""
        self._count = 0
        self._walk(workflow.step, self._add(), ())
        for place in self.places.values():
            self._connect(place)
        for test in self._tests:
            self._check_test(*test)
        self._refuse_cycles()
        for limited in self._limited:
            self._refuse_stuck(*limited)

    def number_of(self, step: Loop | ForEach) -> int:
        """Return the number of the body of a step, as in `Place.bodies`."""
        return self._numbers[id(step)]

    def key_of(self, branch: Branch) -> str:
        """Return the key of a branch in the journal: its first task, which a branch around it may begin with, too."""
        return self._branches[id(branch)]

    # the nodes: each task, and a beginning and an end of whatever has several steps

    def _add(self) -> int:
        self._count += 1
        self._edges[self._count] = []
        return self._count

    def _link(self, before: int, after: int, fork: str = "") -> None:
        self._edges[before].append((after, fork))

    def _walk(self, step: Step, before: int, bodies: tuple[int, ...]) -> int:
        """Add the nodes of a step that begins after the node `before`; return its last node."""
        if isinstance(step, Task):
            return self._add_task(step, before, bodies)
        if isinstance(step, Sequence):
            for each in step.steps:
                before = self._walk(each, before, bodies)
            return before
        if isinstance(step, Loop | ForEach):
            number = self._numbers[id(step)] = self._add()
            self._link(before, number)
            if isinstance(step, Loop):
                if step.max_iterations < 1:
                    raise FlowError(INVALID, f"a loop has 1 iteration or more, not {step.max_iterations}")
                self._add_test(step.until, True)
            elif isinstance(step.items, str):
                self._tests.append((step.items, [step.items.partition(".")[0]], bool(bodies), None))
            end = self._walk(step.body, number, (*bodies, number))
            self._ends[number] = end
            return end
        if isinstance(step, Branch):
            self._add_test(step.condition, bool(bodies))
            first = next(tasks_of(step), None)
            key = f"branch:{first.id if first is not None else ''}"
            self._branches[id(step)] = f"{key}/{self._around[key]}" if self._around[key] else key
            self._around[key] += 1
            steps: tuple[Step, ...] = (step.then, *((step.otherwise,) if step.otherwise is not None else ()))
        else:
            steps = step.steps
        end = self._add()
        self._link(before, end)
        nodes: list[range] = []
        for each in steps:
            begin = self._count + 1
            self._link(self._walk(each, before, bodies), end)
            nodes.append(range(begin, self._count + 1))
        if isinstance(step, Parallel) and step.max_concurrency and step.max_concurrency < len(nodes):
            self._limited.append((step.max_concurrency, nodes))
        return end

    def _add_task(self, task: Task, before: int, bodies: tuple[int, ...]) -> int:
        if not _ID.fullmatch(task.id) or task.id in _RESERVED:
            message = "an id has up to 64 letters, digits, '-' or '_', and is not input, item or iteration"
            raise FlowError(INVALID, message, task.id)
        if task.id in self.places:
            raise FlowError(INVALID, "two tasks have this id", task.id)
        _check_task(task)
        self._add_test(task.skip_if, bool(bodies), task)
        node = self._nodes[task.id] = self._add()
        self.places[task.id] = Place(task, bodies)
        self._link(before, node)
        return node

    # what waits for what

    def _connect(self, place: Place) -> None:
        task = place.task
        _check_names(task, place.bodies)
        for name in task.before:
            if name not in self.places:
                raise FlowError(DEPENDENCY_NOT_FOUND, f"there is no task '{name}' to depend on", task.id)
            self._link(self._find_end(name, place.bodies), self._nodes[task.id])
        if task.fork is None:
            return
        if task.fork not in self.places:
            message = f"there is no task '{task.fork}' to fork"
            raise FlowError(FORK_SOURCE_NOT_FOUND, message, task.id, task.fork)
        if task.agent is None:
            message = "only the task of an agent has a session, and can fork one"
            raise FlowError(FORK_SESSION_UNAVAILABLE, message, task.id, task.fork)
        if self.places[task.fork].task.agent is None:
            message = f"'{task.fork}' is no agent's, and has no session"
            raise FlowError(FORK_SESSION_UNAVAILABLE, message, task.id, task.fork)
        self._link(self._find_end(task.fork, place.bodies), self._nodes[task.id], task.id)

    def _add_test(self, test: Test | None, is_inside: bool, task: Task | None = None) -> None:
        """Remember the names in a condition. Raises `FlowError` for one that cannot be read."""
        if isinstance(test, str):
            try:
                names = [path.partition(".")[0] for path in Condition.parse(test).paths()]
            except ConditionError as error:
                message = f"the condition {test!r}: {error}"
                raise FlowError(INVALID, message, task.id if task else "", text=test) from None
            self._tests.append((test, names, is_inside, task))

    def _check_test(self, text: str, names: list[str], is_inside: bool, task: Task | None) -> None:
        """Raise `FlowError` for a name that never has a value."""
        known = {"input", *self.places, *(("item", "iteration") if is_inside else ()), *(task.needs if task else ())}
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are: {', '.join(sorted(known)[:MOST_NAMED])}"
                message = f"'{text}' names '{name}', which is no task and no input{hint}"
                raise FlowError(INVALID, message, task.id if task else "", text=text)

    def _find_end(self, name: str, bodies: tuple[int, ...]) -> int:
        """Return the node after which a task is done, seen from `bodies`: outside of its loop, the end of that."""
        inside = self.places[name].bodies
        for depth, body in enumerate(inside):
            if depth >= len(bodies) or bodies[depth] != body:
                return self._ends[body]
        return self._nodes[name]

    def _refuse_cycles(self) -> None:
        """Raise `FlowError` when something waits for itself, after a walk that takes each edge once."""
        waiting = self._count_before()
        free = [node for node, count in waiting.items() if not count]
        for node in free:
            for after, _ in self._edges[node]:
                waiting[after] -= 1
                if not waiting[after]:
                    free.append(after)
        if len(free) == len(waiting):
            return
        done = set(free)
        names = {node: name for name, node in self._nodes.items()}
        forks = [fork for node in waiting if node not in done for _, fork in self._edges[node] if fork]
        if forks:
            task = self.places[forks[0]].task
            message = f"it forks '{task.fork}', which comes after it, or waits for it"
            raise FlowError(FORK_CYCLE, message, task.id, task.fork or "")
        stuck = [names[node] for node in waiting if node not in done and node in names]
        raise FlowError(CYCLE, f"these wait for each other: {', '.join(stuck[:10])}", stuck[0] if stuck else "")

    def _refuse_stuck(self, places: int, steps: list[range]) -> None:
        """Raise `FlowError` when all steps that have a place would wait for one that has none.

        A walk that takes each edge once, as in `_refuse_cycles`, and begins a step when there is a place for it.
        """
        step_of = {node: number for number, nodes in enumerate(steps) for node in nodes}
        unfinished = [len(nodes) for nodes in steps]
        waiting = self._count_before()
        ready = [node for node, count in waiting.items() if not count]
        held: list[list[int]] = [[] for _ in steps]
        begun, at_work = 0, 0
        while ready or (at_work < places and begun < len(steps)):
            if not ready:
                ready, begun, at_work = held[begun], begun + 1, at_work + 1
                continue
            node = ready.pop()
            step = step_of.get(node, -1)
            if step >= begun:
                held[step].append(node)
                continue
            if step >= 0:
                unfinished[step] -= 1
                at_work -= not unfinished[step]
            for after, _ in self._edges[node]:
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        if begun < len(steps):
            own = {node for step in range(begun) if unfinished[step] for node in steps[step]}
            names = [name for name, node in self._nodes.items() if node in own]
            message = f"{', '.join(names[:10])} wait for steps that come after them, and max_concurrency is {places}"
            raise FlowError(CYCLE, message, names[0])

    def _count_before(self) -> dict[int, int]:
        """Return how many nodes each node waits for."""
        waiting = dict.fromkeys(self._edges, 0)
        for edges in self._edges.values():
            for node, _ in edges:
                waiting[node] += 1
        return waiting


def tasks_of(step: Step | None) -> Iterator[Task]:
    """Yield the tasks of a step."""
    if isinstance(step, Task):
        yield step
    elif isinstance(step, Sequence | Parallel):
        for each in step.steps:
            yield from tasks_of(each)
    elif isinstance(step, Branch):
        yield from tasks_of(step.then)
        yield from tasks_of(step.otherwise)
    elif step is not None:
        yield from tasks_of(step.body)


def _check_task(task: Task) -> None:
    if task.agent is not None and task.compute is not None:
        raise FlowError(INVALID, "it has an agent and a function; a task has one of them, or a value", task.id)
    if task.agent is not None and not task.prompt and task.fork is None:
        raise FlowError(INVALID, "its prompt is empty; only a fork goes on without one", task.id)
    if task.agent is None and (task.cache or task.budget is not None):
        raise FlowError(INVALID, "'cache' and 'budget' are for the task of an agent", task.id)
    if task.budget is not None and Limits.of(task.budget) is None:
        raise FlowError(INVALID, "its budget names no limit: give usd, tokens, turns or seconds", task.id)
    for name in ("retries", "max_schema_retries"):
        if not isinstance(getattr(task, name), int) or not 0 <= getattr(task, name) <= 100:
            raise FlowError(INVALID, f"{name} must be from 0 to 100", task.id)
    if task.timeout is not None and (not isinstance(task.timeout, (int, float)) or task.timeout <= 0):
        raise FlowError(INVALID, "timeout must be above 0 seconds", task.id)
    if isinstance(task.output_schema, dict):
        _check_schema(task)
    if task.agent is None and task.compute is None:
        as_stored(task.value, task.id)


def _check_schema(task: Task) -> None:
    from ..documents.json_schema import SchemaUnusable, check_schema

    try:
        check_schema(task.output_schema)
    except SchemaUnusable as error:
        raise FlowError(INVALID, f"its output_schema {error}", task.id) from None


def _check_names(task: Task, bodies: tuple[int, ...]) -> None:
    """Raise `FlowError` for a name in a text of a task that is none of its inputs."""
    texts = (task.prompt, task.needs_approval, task.question if isinstance(task, Approval) else "")
    known = {"input", *task.deps, *task.needs, *(("item", "iteration") if bodies else ())}
    for name in (name for text in texts if isinstance(text, str) for name in names_in(text)):
        if name not in known:
            raise FlowError(INVALID, describe_unknown(name, known), task.id)


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """Return what is said of a name in a prompt that is no input."""
    return f"its prompt names {{{name}}}; it has only: {', '.join(sorted(known))}. Others come with deps and needs"
