"""Several hosts in one process: a manager, a member and a leadership each; they share a store in memory and a clock."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StoreUnavailable
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_foundation import BackgroundSessionManager, EventRouter
from amplifier_foundation.background.hosts.clock import StoreClock
from amplifier_foundation.background.hosts.leading import Leadership
from amplifier_foundation.background.hosts.member import Member, taking_part
from amplifier_foundation.background.hosts.sharing import Share
from amplifier_foundation.background.tasks import keep_beside

from .bench import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core import AmplifierSession
    from amplifier_core.plugins import Plugins
    from amplifier_core.testing import VirtualClock
    from amplifier_foundation import PreparedBundle

LEASE = 10.0
CALLS = {
    *("create", "append", "update", "delete", "emit", "events", "enqueue", "claim", "renew", "commit", "nack", "get"),
    *("dead_letter", "release", "deliveries", "next_due", "trigger_state", "save_trigger_state", "now", "reserve"),
    *("lead", "resign", "leases", "present", "absent", "processes", "documents", "write_documents", "delivery_counts"),
}


class Line(SharedMemoryStore):
    """The store as one host reaches it, over a line that a test cuts; a test also stops what `answers`.

    A store that does not answer carries out later what it was asked, whether or not anybody still waits for it; claims
    cannot be renewed meanwhile.
    """

    __slots__ = ("answers", "cut")

    def __init__(self, store: SharedMemoryStore, cut: asyncio.Event, answers: asyncio.Event) -> None:
        self.__dict__, self._fence, self.cut, self.answers = store.__dict__, None, cut, answers

    def __getattribute__(self, name: str) -> Any:
        found, ask = super().__getattribute__(name), object.__getattribute__
        is_silent = not ask(self, "answers").is_set()
        if name in CALLS and (ask(self, "cut").is_set() or (is_silent and name == "renew")):

            async def fail(*args: Any, **kwargs: Any) -> None:
                raise StoreUnavailable("postgres", "nobody answers")

            return fail
        if name in CALLS and is_silent:

            async def carry_out(*args: Any, **kwargs: Any) -> Any:
                await ask(self, "answers").wait()
                return await found(*args, **kwargs)

            return lambda *args, **kwargs: asyncio.shield(asyncio.create_task(carry_out(*args, **kwargs)))
        return found

    def fenced(self, delivery: Any) -> Line:
        view = Line(self, self.cut, self.answers)
        view._fence = delivery
        return view


class HostBench(Bench):
    """One host."""

    def __init__(self, manager: Any, store: Any, router: Any, clock: Any, share: Share) -> None:
        super().__init__(manager, store, router, clock)
        manager._engine.lease = share.member.lease
        self.member, self.leadership = share.member, share.leadership
        self.cut, self.answers = store.cut, store.answers

    @property
    def leads(self) -> bool:
        return self.leadership is not None and self.leadership.lease is not None


@dataclass
class Hosts:
    """Opens hosts on one store and one clock."""

    parent: AmplifierSession
    plugins: Plugins
    clock: VirtualClock
    store: SharedMemoryStore
    open_hosts: list[HostBench] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, name: str, bundle: PreparedBundle, role: str = "up") -> AsyncIterator[HostBench]:
        """Bring up the bundle on a host of that name."""
        store = Line(self.store, asyncio.Event(), asyncio.Event())
        store.answers.set()
        facts = {"bundles": {bundle.bundle.name: bundle.bundle.digest}, "projects": [self._project]}
        member = Member(store, role, LEASE, StoreClock(self.clock), f"1-{name}@{name}", facts)
        router = EventRouter(store)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(taking_part(member, [self._project]))
            leadership = Leadership.of_triggers(member, self._project, bundle.bundle.name, bundle.bundle.digest)
            if role == "up":
                await stack.enter_async_context(keep_beside(leadership.run, "leadership"))
            share = Share(member, leadership if role == "up" else None)
            manager = BackgroundSessionManager(
                self.parent, router, store, plugins=self.plugins, bundle=bundle, share=share
            )
            await stack.enter_async_context(manager)
            member.wakers += [router.look_again, manager.wake]
            member.followers.append(manager.follow_wishes)
            host = HostBench(manager, store, router, self.clock, share)
            self.open_hosts.append(host)
            try:
                yield host
            finally:
                store.cut.clear()
                store.answers.set()

    @asynccontextmanager
    async def open_alone(self, bundle: PreparedBundle) -> AsyncIterator[Bench]:
        """Bring up the bundle where the store is that of one host."""
        router = EventRouter(self.store)
        async with BackgroundSessionManager(
            self.parent, router, self.store, plugins=self.plugins, bundle=bundle, clock=self.clock
        ) as manager:
            yield Bench(manager, self.store, router, self.clock)

    @property
    def _project(self) -> str:
        return str(self.parent.coordinator.get_capability("session.working_dir"))

    @property
    def leaders(self) -> list[str]:
        return [host.member.host for host in self.open_hosts if host.leads]
