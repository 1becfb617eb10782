"""Own the running children of a session, and count all sessions of a tree for its limits.

Every child runs in a task of its family or in its caller's. A family ends before its session does: `end` cancels the
children and waits until each is stored. Nothing runs on without an owner.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.frozen import slotted

from ..sessions.accounts import Account, accounts_of, bundle_account, tree_account
from ..sessions.recording import shield_to_completion
from .budget import Budget, Limits
from .inheritance import Inheritance

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.session import AmplifierSession

    from ..bundle.model import Bundle

FAMILY, TREE = "session.family", "session.tree"


@slotted
class Tree:
    """All sessions below one at the top."""

    limits: Mapping[str, Any] = field(default_factory=dict)
    """The section `spawn` of the bundle at the top; it holds for all sessions below."""
    spawned: int = 0
    """The number of sessions made so far, ended ones included."""
    observers: Sequence[Callable[[AmplifierSession], None]] = ()
    """Called with every session of the tree after its modules are mounted."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the session with a question for approval."""
    budgets: Sequence[Budget] = ()
    """The budgets of all its sessions together."""
    accounts: Sequence[str] = ()
    """The accounts of its sessions."""
    clock: Clock = field(default_factory=SystemClock)
    lock: str = ""
    """The session whose lock is held while any of them runs; '': none is."""

    @classmethod
    def of(cls, session: AmplifierSession) -> Tree:
        """Return the tree of a session; a session at the top begins one."""
        tree: Tree | None = session.coordinator.get_capability(TREE)
        if tree is not None:
            return tree
        limits, account, clock = session.config.get("spawn") or {}, tree_account(session.session_id), SystemClock()
        return cls(limits, budgets=Budget.of_tree(limits, account, clock.now()), accounts=(account,), clock=clock)

    @classmethod
    def below(
        cls,
        session_id: str,
        bundle: Bundle,
        created: datetime,
        metadata: Mapping[str, Any] | None = None,
        *,
        queue: tuple[str, Budget | None] | None = None,
        observers: Sequence[Callable[[AmplifierSession], None]] = (),
        clock: Clock | None = None,
    ) -> Tree:
        """Return the tree of a session to be made of `bundle`, or of a stored one with this `metadata`.

        `queue` is the account of its background session, with the budget of that; the session is run under a claim
        then, else under its lock.
        """
        account = bundle_account(bundle.name, bundle.source_path)
        accounts = accounts_of(metadata or {}) or (tree_account(session_id), account, *(queue[:1] if queue else ()))
        of_bundle = Limits.of(bundle.budget)
        budgets = Budget.of_tree(bundle.spawn, accounts[0], created)
        if of_bundle is not None:
            budgets.append(Budget(of_bundle, "bundle", "budget: {…}", Account(account), is_shared=True))
        if queue is not None and queue[1] is not None:
            budgets.append(queue[1])
        tree = cls(bundle.spawn, observers=observers, budgets=budgets, accounts=accounts, clock=clock or SystemClock())
        tree.lock = session_id if queue is None else ""
        return tree


class Family:
    """The children of one session; running ones are ended before it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.inheritance = Inheritance()
        self._running: dict[str, asyncio.Task[Any] | None] = {}

    @classmethod
    def of(cls, session: AmplifierSession) -> Family:
        """Return the family of a session; the first call begins it."""
        coordinator = session.coordinator
        family: Family | None = coordinator.get_capability(FAMILY)
        if family is None:
            family = cls(Tree.of(session))
            coordinator.register_capability(FAMILY, family)
            coordinator.register_cleanup(family.end)
        return family

    @property
    def running(self) -> list[str]:
        """The ids of the running children."""
        return list(self._running)

    @property
    def size(self) -> int:
        """The number of the running children."""
        return len(self._running)

    def has(self, session_id: str) -> bool:
        """Return whether a child runs."""
        return session_id in self._running

    def count(self, session_id: str) -> None:
        """Count a child that runs in this task, until `discount`."""
        self.tree.spawned += 1
        self._running[session_id] = asyncio.current_task()

    def discount(self, session_id: str) -> None:
        """Count a child no longer as a running one."""
        self._running.pop(session_id, None)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a counted child in a task of its own; the family ends the task."""
        self._running[name] = None  # an eager task counts from its begin
        self._running[name] = task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda ended: self._let_go(name, ended))
        return task

    def _let_go(self, name: str, task: asyncio.Task[Any]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # the outcome is stored and emitted: nobody has to wait for it

    async def end(self) -> None:
        """Cancel the running children and wait until each is stored, also when cancelled meanwhile."""
        if not self._running:
            return
        own = asyncio.current_task()
        tasks = {task for task in self._running.values() if task is not None and task is not own}
        if tasks:
            await shield_to_completion(end_tasks(tasks))


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for them. Each is given the time to begin: before, it could not store its end."""
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def has_ended(session: AmplifierSession) -> bool:
    """Return whether a session has ended; that of another engine may not say so."""
    return getattr(session, "ended_at", None) is not None


async def end_children(session: AmplifierSession) -> None:
    """End the running children of a session."""
    family: Family | None = session.coordinator.get_capability(FAMILY)
    if family is not None:
        await family.end()
