"""Take part in a shared store: show presence, follow its clock, hear its hints, carry out commands of people."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, StaleEpoch, StoreUnavailable
from amplifier_core.frozen import slotted
from amplifier_core.shared_stores import Presence, host_of

from ...sessions.presence import is_gone, this_process
from ..keys import key_on_host
from ..lost_claims import LostClaims
from ..tasks import keep_beside
from .clock import StoreClock
from .commands import answer_command, read_commands

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from amplifier_core.shared_stores import SharedStore
    from amplifier_core.storage import Admission, Delivery
    from amplifier_core.triggers import TriggerEvent

    from .leading import Leadership

logger = logging.getLogger(__name__)

SIGN_EVERY = 5.0
"""Seconds between two signs of a process, at most; a fourth of a shorter lease."""
UNSEEN = 40.0
"""Seconds without a sign until people are told that a process is unseen, at most; 4/3 of a shorter lease."""
SOONEST = 10.0
"""The same at least: a busy machine signs late."""
FORGOTTEN = 3600.0
"""Seconds without a sign after which a worker is forgotten."""
LOOK_EVERY = 1.0
"""Seconds between two looks at commands and wishes."""
TOGETHER = 0.01
"""Seconds in which hints count as one."""
LEASE = 30.0
"""Seconds that a claim and a leadership hold without being renewed."""
OWN_SHARE = 0.8
"""The part of a lease after which a process that cannot renew it stops its own work: others take it over at its end."""


@slotted
class Member:
    """This process as a member of the hosts that share a store."""

    store: SharedStore
    role: str
    lease: float = LEASE
    clock: StoreClock = field(default_factory=StoreClock)
    process: str = field(default_factory=this_process)
    facts: dict[str, Any] = field(default_factory=dict)
    wakers: list[Callable[[], None]] = field(default_factory=list)
    """Called in the event loop when others have stored something."""
    followers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Awaited every second: they follow what people wish in the store."""
    obey: Callable[[str, Mapping[str, Any]], Awaitable[Any]] | None = None
    """Carries out a command; None: this process takes none."""
    states: Callable[[], Mapping[str, Any]] = dict
    """Returns the states of its background sessions, by project and queue, for people on other hosts."""
    report: Callable[[str, str], None] = lambda component, problem: None
    """Shows the problem of a component in the status of its background sessions; '' for none."""
    lost: LostClaims = field(default_factory=LostClaims)
    """Its lost claims, of which other hosts hear."""
    _signing: asyncio.Lock = field(default_factory=asyncio.Lock)
    drain_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a person drains this host: it takes no new work, and ends when its work is done."""

    @property
    def host(self) -> str:
        """The host of this process."""
        return host_of(self.process)

    @property
    def draining(self) -> bool:
        """Whether it takes no new work."""
        return self.drain_asked.is_set()

    @property
    def claims_for(self) -> float:
        """Seconds after which a claim that was not renewed is given up here."""
        return self.lease * OWN_SHARE

    async def others(self) -> list[Presence]:
        """Return the other processes that are seen."""
        now = self.clock.now()
        return [each for each in await self.store.processes() if each.process != self.process and is_seen(each, now)]

    async def has_company(self, project: str) -> bool:
        """Return whether another process works on a project."""
        return any(project in (each.facts.get("projects") or ()) for each in await self.others())

    async def sign(self) -> None:
        """Follow the store's clock, and show that this process is there. Raises `StoreUnavailable`."""
        async with self._signing:  # else the states of before might be stored last
            await self.clock.follow(self.store)
            facts = {**self.facts, "role": self.role, "draining": self.draining, "states": self.states()}
            facts |= {"lease": self.lease, "lost": dict(self.lost.counts)}
            await self.store.present(self.process, facts)

    async def count_lost(self, delivery: Delivery) -> int:
        """Return how many claims of a delivery were lost by processes that could not use the store."""
        told = [each.facts.get("lost") or {} for each in await self.store.processes() if each.process != self.process]
        return sum(each.get(delivery.delivery_id, 0) for each in [self.lost.counts, *told])

    async def clear_dead(self, projects: Collection[str]) -> None:
        """Free the claims of processes of this host that are gone, and forget those processes.

        A machine with a copy of this data folder has the same host: its processes are left to their leases.
        """
        name = self.facts.get("name")
        mine = [
            each.process
            for each in await self.store.processes()
            if each.host == self.host and each.facts.get("name") == name
        ]
        dead = [process for process in mine if process != self.process and is_gone(process)]
        if not dead:
            return
        for project in sorted(projects):
            await self.store.release(project, owners=dead)
        for process in dead:
            await self.store.absent(process)

    async def enqueue(
        self,
        place: tuple[str, str, str],
        event: TriggerEvent,
        leadership: Leadership | None,
        *,
        refused: str | None,
        admission: Admission | None,
        local: bool,
    ) -> Delivery | None:
        """Store an event for `place` (project, queue, trigger), as `SharedStore.enqueue` does.

        Only the leader stores events of its triggers. Files are this host's own: an event about one is handled here,
        and the same event of another host is another one. Raises `StaleEpoch` when the leadership is over.
        """
        project, queue, trigger = place
        trigger = key_on_host(trigger, self.host) if local else trigger
        only_on = self.host if local and event.file_path is not None else None
        if only_on is not None and event.dedupe_key is not None:
            event = replace(event, dedupe_key=f"{self.host} {event.dedupe_key}")
        leader = leadership.lease if leadership is not None else None
        if leadership is not None and leader is None:
            raise StaleEpoch(leadership.name, 0)
        return await self.store.enqueue(
            project,
            queue,
            trigger,
            event,
            refused=refused,
            admission=admission,
            now=self.clock.now(),
            leader=leader,
            only_on=only_on,
        )

    def report_problem(self, component: str, problem: str) -> None:
        """Call `report`, as it is then: it is set when this process takes commands."""
        self.report(component, problem)

    def wake(self) -> None:
        """Call the wakers."""
        for waker in self.wakers:
            waker()

    async def forget_workers(self) -> None:
        """Forget workers that have given no sign for long: they hold nothing of their own, and often come only once."""
        now = self.clock.now()
        for each in await self.store.processes():
            if each.facts.get("role") == "worker" and (now - each.seen).total_seconds() > FORGOTTEN:
                await self.store.absent(each.process)

    async def show(self) -> None:
        """Give signs of this process until cancelled; a store that cannot be used is tried again."""
        tidied = self.clock.monotonic()
        while True:
            await self.clock.sleep(min(SIGN_EVERY, self.lease / 4))
            with suppress(StoreUnavailable):  # workers and triggers tell of the store
                await self.sign()
                if self.clock.monotonic() - tidied > FORGOTTEN:
                    await self.forget_workers()
                    tidied = self.clock.monotonic()

    async def carry_out(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do what another host asks, and show it: the states are stored before the answer is."""
        answer = await self.obey(operation, arguments) if self.obey is not None else None
        await self.sign()
        return answer

    async def look(self) -> None:
        """Follow wishes, and carry out commands, until cancelled."""
        while True:
            await self.clock.sleep(LOOK_EVERY)
            try:
                for follow in self.followers:
                    await follow()
                if self.obey is not None:
                    for command in await read_commands(self.store, self.process):
                        await answer_command(self.store, command, self.carry_out)
            except StoreUnavailable:
                continue
            except AmplifierError as error:
                logger.error("a wish or a command of another host failed: %s", error)


def is_seen(presence: Presence, now: Any) -> bool:
    """Return whether a process has given a sign in time: later, others have taken its work over."""
    patience = max(SOONEST, 4 / 3 * float(presence.facts.get("lease") or LEASE))
    return bool((now - presence.seen).total_seconds() < min(UNSEEN, patience))


def describe_process(bundles: Mapping[str, str], projects: Collection[str]) -> dict[str, Any]:
    """Return the facts of this process; `bundles` are names with digests."""
    return {
        "name": platform.node(),
        "pid": os.getpid(),
        "version": version("amplifier"),
        "bundles": dict(bundles),
        "projects": sorted(projects),
    }


@asynccontextmanager
async def taking_part(member: Member, projects: Collection[str]) -> AsyncIterator[Member]:
    """Be a member while the block runs: dead processes of this host are cleared first. Raises `StoreUnavailable`."""
    await member.sign()
    await member.clear_dead(projects)
    loop = asyncio.get_running_loop()
    stop_listening = member.store.listen(_together(loop, member.wake))
    report = member.report_problem
    try:
        async with (
            keep_beside(member.show, "host signs", report),
            keep_beside(member.look, "host commands", report),
        ):
            yield member
    finally:
        stop_listening()
        with suppress(StoreUnavailable):  # its signs end, and others see that
            await member.store.absent(member.process)


def _together(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Callable[[], None]:
    """Return a function for any thread that has `call` called in the loop, once for hints that come together."""
    waiting = False

    def run() -> None:
        nonlocal waiting
        waiting = False
        call()

    def note() -> None:
        nonlocal waiting
        if not waiting:
            waiting = True
            loop.call_later(TOGETHER, run)

    def told() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(note)

    return told
