"""Sum up how far each step of a run is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def text_of(output: Any) -> str:
    """Return an output as text."""
    import json

    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
