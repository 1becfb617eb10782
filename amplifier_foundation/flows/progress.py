"""Sum up how far each step of a run is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from ..documents.dicts import at_path
from .description import certain_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .description import Plain
    from .journal import Entry


@frozen
class Progress:
    """What is known of a step: its last entry, and the number of its entries, one for each iteration."""

    last: Entry
    count: int = 1
    failed: int = 0
    """Iterations whose last attempt failed."""


def sum_up(entries: Iterable[Entry]) -> dict[str, Progress]:
    """Return the progress of tasks by id; of decisions by their key, with a `#` for each iteration around it."""
    latest: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        if entry.status == "retried":  # its next attempt runs, or is to come
            continue
        name, *iterations = entry.key.split("#")
        step = name + "#" * len(iterations) if entry.status == "chosen" else entry.task
        known = latest.setdefault(step, {})
        known.pop(entry.key, None)  # the last one written stands last
        known[entry.key] = entry
    return {step: _sum_up(list(known.values())) for step, known in latest.items()}


def _sum_up(entries: list[Entry]) -> Progress:
    return Progress(entries[-1], len(entries), sum(1 for each in entries if each.status == "failed"))


def count_items(description: Plain, entries: Iterable[Entry], given: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return how many items are done, and of how many, for the tasks with items left in a run with these inputs.

    It tells of steps `for_each` that every run comes to, and of their tasks that each item comes to.
    """
    known = list(entries)
    seen = {"input": dict(given), **{each.task: each.output for each in known if "#" not in each.key}}
    found = {}
    for each in certain_steps(description["steps"]):
        if "for_each" not in each:
            continue
        items = at_path(seen, each["for_each"].split(".")) if isinstance(each["for_each"], str) else each["for_each"]
        for task in certain_steps(each["do"]):
            done = {one.key for one in known if one.task == task.get("id") and one.status not in ("retried", "chosen")}
            if isinstance(items, list) and done and len(done) < len(items):
                found[task["id"]] = (len(done), len(items))
    return found


def text_of(output: Any) -> str:
    """Return an output as text."""
    import json

    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
