"""Draw a workflow: as a tree of text, and as a Mermaid flowchart; with a run, how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .graph import tasks_of
from .tasks import Branch, ForEach, Loop, Parallel, Sequence, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .tasks import Step, Test, Workflow

_MARKS = {"completed": "✓", "waiting": "?", "failed": "✗", "skipped": "-", "absent": "-"}


class _Node(NamedTuple):
    text: str
    below: tuple[tuple[str, Step], ...] = ()
    """Steps below it, each with a word for it."""


def draw_text(workflow: Workflow, states: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines of a tree; `states` has the status of tasks by id, for their marks."""
    yield workflow.name
    yield from _draw(tuple(("", step) for step in _flatten(workflow.step)), "", states or {})


def _draw(steps: tuple[tuple[str, Step], ...], margin: str, states: Mapping[str, str]) -> Iterator[str]:
    for number, (word, step) in enumerate(steps, 1):
        is_last = number == len(steps)
        node = _describe(step)
        mark = f"{_MARKS.get(states.get(step.id, ''), '·')} " if isinstance(step, Task) and states else ""
        yield f"{margin}{'└─' if is_last else '├─'} {mark}{f'{word}: ' if word else ''}{node.text}"
        yield from _draw(node.below, f"{margin}{'   ' if is_last else '│  '}", states)


def _describe(step: Step) -> _Node:
    if isinstance(step, Task):
        facts = [step.kind]
        facts += [f"forks {step.fork}"] if step.fork else []
        facts += [f"after {', '.join(step.before)}"] if step.before else []
        facts += ["asks first"] if step.needs_approval else []
        return _Node(f"{step.id}  ({'; '.join(facts)})")
    if isinstance(step, Sequence):
        return _Node("one after the other", _list(step))
    if isinstance(step, Parallel):
        most = f", at most {step.max_concurrency} at a time" if step.max_concurrency else ""
        return _Node(f"side by side{most}", tuple(("", each) for each in step.steps))
    if isinstance(step, Branch):
        arms = [("then", each) for each in _flatten(step.then)]
        arms += [("else", each) for each in _flatten(step.otherwise)] if step.otherwise is not None else []
        return _Node(f"if {_show(step.condition)}", tuple(arms))
    if isinstance(step, Loop):
        return _Node(f"again until {_show(step.until)}, at most {step.max_iterations} times", _list(step.body))
    items = step.items if isinstance(step.items, str) else "the items"
    return _Node(f"for each of {items}", _list(step.body))


def _list(step: Step) -> tuple[tuple[str, Step], ...]:
    return tuple(("", each) for each in _flatten(step))


def _flatten(step: Step) -> tuple[Step, ...]:
    return step.steps if isinstance(step, Sequence) else (step,)


def _show(test: Test) -> str:
    return test if isinstance(test, str) else getattr(test, "__name__", "a function")


def draw_mermaid(workflow: Workflow, states: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines of a flowchart: solid arrows for the order, dotted ones for forks."""
    states = states or {}
    yield "flowchart TD"
    lines: list[str] = []
    forks: list[str] = []
    count = 0

    def name() -> str:
        nonlocal count
        count += 1
        return f"n{count}"

    names = {task.id: f"task{number}" for number, task in enumerate(tasks_of(workflow.step), 1)}
    _walk(workflow.step, ["start"], name, names, lines, forks, states)
    yield f'  start(["{_quote(workflow.name)}"])'
    yield from lines
    yield from forks


def _walk(
    step: Step,
    before: list[str],
    name: Callable[[], str],
    names: Mapping[str, str],
    lines: list[str],
    forks: list[str],
    states: Mapping[str, str],
) -> list[str]:
    """Add the lines of a step that follows the nodes `before`; return its last nodes."""
    if isinstance(step, Task):
        mark = f"{_MARKS[states[step.id]]} " if states.get(step.id) in _MARKS else ""
        own = names[step.id]
        lines.append(f'  {own}["{_quote(mark + step.id)}"]')
        lines += [f"  {each} --> {own}" for each in before]
        if step.fork:
            forks.append(f"  {names[step.fork]} -. fork .-> {own}")
        return [own]
    if isinstance(step, Sequence):
        for each in step.steps:
            before = _walk(each, before, name, names, lines, forks, states)
        return before
    if isinstance(step, Parallel):
        return [end for each in step.steps for end in _walk(each, before, name, names, lines, forks, states)]
    node = name()
    lines.append(f'  {node}{{{{"{_quote(_describe(step).text)}"}}}}')
    lines += [f"  {each} --> {node}" for each in before]
    if isinstance(step, Branch):
        ends = _walk(step.then, [node], name, names, lines, forks, states)
        return ends + (_walk(step.otherwise, [node], name, names, lines, forks, states) if step.otherwise else [node])
    ends = _walk(step.body, [node], name, names, lines, forks, states)
    if isinstance(step, Loop):
        lines += [f"  {end} --> {node}" for end in ends]
        return [node]
    assert isinstance(step, ForEach)
    return ends


def _quote(text: str) -> str:
    return text.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
