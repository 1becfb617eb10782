"""Hold the results of tasks: those of an iteration are seen in it, and the last ones outside of its loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .graph import tasks_of
from .journal import WAITING, Entry

if TYPE_CHECKING:
    from .tasks import Step


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
        """The outputs of the completed tasks, and the lists of outputs of tasks side by side."""

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
            if entry.status == "completed" or entry.output is not None:
                self._outputs[entry.task] = entry.output

    def known(self) -> dict[str, Any]:
        """Return the outputs so far, those of the scopes around it included."""
        found: dict[str, Any] = {}
        for scope in self.chain:
            found |= scope._outputs
        return found


def hold_step(step: Step, scope: Scope) -> None:
    """Have the tasks of a step wait, for all that wait for them."""
    for task in tasks_of(step):
        scope.settle(Entry(task.id + scope.suffix, task.id, WAITING))


def export(body: Step, inner: list[Scope], outer: Scope, *, gathers: bool = False) -> None:
    """Have the last results of a body outside of it; of side by side ones, the outputs are a list."""
    for task in tasks_of(body):
        entries = [scope.slot(task.id).result() for scope in inner]
        if not entries:
            outer.settle(Entry(task.id, task.id, "absent", []))
        elif gathers:
            outer.settle(replace(entries[-1], output=[each.output for each in entries]))
        else:
            outer.settle(entries[-1])
