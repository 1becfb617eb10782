"""Draw a described workflow: as a tree of text, and as a Mermaid flowchart; with a run, how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..sessions.lineage_text import mermaid_text
from .description import described_tasks, steps_below, tasks_before

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .description import Plain

SIGNS = {"completed": "✓", "failed": "✗", "skipped": "-", "absent": "-", "running": "▶", "waiting": "?"}
"""The sign of each state of a task."""
NOT_DONE = "·"
"""The sign of a task without a state."""


class Row(NamedTuple):
    """A line of the tree: the lines left of it, the step that it stands for, and a word before that."""

    margin: str
    step: Plain
    word: str = ""


def draw_text(
    description: Plain, states: Mapping[str, str] | None = None, items: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[str]:
    """Yield the lines of a tree; `states` has the status of tasks by id, for their signs.

    `items` are the numbers of done and of all items, for tasks with some left.
    """
    yield description["name"]
    for margin, step, word in rows_of(description["steps"]):
        sign = f"{SIGNS.get((states or {}).get(step['id'], ''), NOT_DONE)} " if "id" in step and states else ""
        yield f"{margin} {sign}{word}{title_of(step)}{_share_of(step.get('id'), items)}"


def rows_of(steps: list[Plain], margin: str = "", words: list[str] | None = None) -> Iterator[Row]:
    """Yield the lines of described steps; `words` stand before their texts."""
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        yield Row(f"{margin}{'└─' if is_last else '├─'}", step, f"{words[number]}: " if words and words[number] else "")
        if "id" not in step:
            below = [(word, each) for word, steps in steps_below(step) for each in steps]
            inner = f"{margin}{'   ' if is_last else '│  '}"
            yield from rows_of([each for _, each in below], inner, [word for word, _ in below])


def title_of(step: Plain) -> str:
    """Return a description of a step in one line."""
    if "id" in step:
        facts = [kind_of(step)]
        facts += [f"forks {step['fork']}"] if "fork" in step else []
        before = tasks_before(step)
        facts += [f"after {', '.join(before)}"] if before else []
        facts += ["asks first"] if "needs_approval" in step else []
        return f"{step['id']}  ({'; '.join(facts)})"
    if "sequence" in step:
        return "one after the other"
    if "parallel" in step:
        return f"side by side{_limit_of(step)}"
    if "if" in step:
        return f"if {name_of(step['if'])}"
    if "loop" in step:
        return f"again until {name_of(step['until'])}, at most {step['max_iterations']} times"
    return f"for each of {name_of(step['for_each'])}{_limit_of(step)}"


def kind_of(task: Plain) -> str:
    """Return what does a described task."""
    if "agent" in task:
        return f"agent {' '.join(task['agent'].split())}"
    return str(task.get("kind") or ("function" if "compute" in task else "value"))


def name_of(test: Any) -> str:
    """Return a condition in one line, or the name of a described function; a list is no more than `the items`."""
    if isinstance(test, str):
        return " ".join(test.split())
    return str(test["function"]).rpartition(".")[2] if isinstance(test, dict) else "the items"


def _limit_of(step: Plain) -> str:
    return f", at most {step['max_concurrency']} at a time" if "max_concurrency" in step else ""


def _share_of(task: str | None, items: Mapping[str, tuple[int, int]] | None) -> str:
    return " {} of {}".format(*items[task]) if task and items and task in items else ""


def draw_mermaid(
    description: Plain, states: Mapping[str, str] | None = None, items: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[str]:
    """Yield the lines of a flowchart: solid arrows for the order, dotted ones for forks. See `draw_text`."""
    chart = _Chart(description, states or {}, items or {})
    chart.add_all(description["steps"], ["start"])
    yield "flowchart TD"
    yield f'  start(["{mermaid_text(description["name"])}"])'
    yield from chart.lines
    yield from chart.forks


class _Chart:
    """The lines of a Mermaid flowchart."""

    def __init__(self, description: Plain, states: Mapping[str, str], items: Mapping[str, tuple[int, int]]) -> None:
        tasks = described_tasks(description["steps"])
        self._names = {task["id"]: f"task{number}" for number, task in enumerate(tasks, 1)}
        self._states = states
        self._items = items
        self._count = 0
        self.lines: list[str] = []
        self.forks: list[str] = []

    def add_all(self, steps: list[Plain], before: list[str]) -> list[str]:
        """Add steps that follow each other, the first one the nodes `before`; return the last nodes."""
        for each in steps:
            before = self._add(each, before)
        return before

    def _add(self, step: Plain, before: list[str]) -> list[str]:
        if "id" in step:
            return [self._add_task(step, before)]
        if "sequence" in step:
            return self.add_all(step["sequence"], before)
        if "parallel" in step:
            return [end for each in step["parallel"] for end in self._add(each, before)] or before
        self._count += 1
        node = f"n{self._count}"
        self.lines.append(f'  {node}{{{{"{mermaid_text(title_of(step))}"}}}}')
        self.lines += [f"  {each} --> {node}" for each in before]
        if "if" in step:
            ends = self.add_all(step["then"], [node])
            return ends + self.add_all(step.get("else", []), [node])
        if "for_each" in step:
            return self.add_all(step["do"], [node])
        self.lines += [f"  {end} -- again --> {node}" for end in self.add_all(step["loop"], [node])]
        return [node]

    def _add_task(self, task: Plain, before: list[str]) -> str:
        own, sign = self._names[task["id"]], SIGNS.get(self._states.get(task["id"], ""), "")
        label = f"{sign} {task['id']}{_share_of(task['id'], self._items)}".strip()
        self.lines.append(f'  {own}["{mermaid_text(label)}<br/>{mermaid_text(kind_of(task))}"]')
        self.lines += [f"  {each} --> {own}" for each in before]
        if "fork" in task:
            self.forks.append(f"  {self._names[task['fork']]} -. fork .-> {own}")
        return own
