"""The sessions that one session made and that still run: who owns their tasks, and what a limit counts."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..recording import carried_out
from .inheritance import Inheritance

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

    from amplifier_core.session import AmplifierSession

FAMILY, TREE = "session.family", "session.tree"


@dataclass(slots=True)
class Tree:
    """All the sessions below one that nobody made."""

    limits: Mapping[str, Any] = field(default_factory=dict)
    """The section `spawn` of the bundle at the top: what it allows holds for all below."""
    spawned: int = 0
    """How many were made so far, also those that have ended."""
    observers: Sequence[Callable[[AmplifierSession], None]] = ()
    """Each is told every session of the tree when its modules are mounted."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that asks for a permission."""


class Family:
    """The children of one session; when it ends, those that still run are ended before it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.inheritance = Inheritance()
        self._running: dict[str, asyncio.Task[Any] | None] = {}

    @classmethod
    def of(cls, session: AmplifierSession) -> Family:
        """Return the family of a session, begun when it is asked for the first time."""
        coordinator = session.coordinator
        family: Family | None = coordinator.get_capability(FAMILY)
        if family is None:
            family = cls(coordinator.get_capability(TREE) or Tree(session.config.get("spawn") or {}))
            coordinator.register_capability(FAMILY, family)
            coordinator.register_cleanup(family.end)
        return family

    @property
    def running(self) -> list[str]:
        """The ids of the children that run now."""
        return list(self._running)

    @contextmanager
    def child(self, session_id: str) -> Iterator[None]:
        """Count a child while the block runs, in the task that runs it."""
        self.tree.spawned += 1
        self._running[session_id] = asyncio.current_task()
        try:
            yield
        finally:
            self._running.pop(session_id, None)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a child that was counted in a task of its own, which ends with the family."""
        task = asyncio.create_task(work, name=name)
        self._running[name] = task
        task.add_done_callback(lambda ended: self._let_go(name, ended))
        return task

    def _let_go(self, name: str, task: asyncio.Task[Any]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # it is stored and told: nobody has to wait for it

    async def end(self) -> None:
        """Cancel the children that still run, and wait until each is stored, also when cancelled meanwhile."""
        own = asyncio.current_task()
        tasks = {task for task in self._running.values() if task is not None and task is not own}
        if tasks:
            await carried_out(end_tasks(tasks))


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for them. Each has begun by then: one that has not could not store how it ended."""
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def end_children(session: AmplifierSession) -> None:
    """End the children of a session that still run, if it made any."""
    family: Family | None = session.coordinator.get_capability(FAMILY)
    if family is not None:
        await family.end()
