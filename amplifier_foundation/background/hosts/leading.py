"""Hold a leadership: one of all hosts runs the triggers of a bundle that belong to no host, and each transport."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable
from amplifier_core.frozen import slotted

from ..tasks import keep_beside
from .sharing import shared_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from amplifier_core.shared_stores import Lease

    from .member import Member

logger = logging.getLogger(__name__)


@slotted
class Leadership:
    """Whether this process leads what has this name: the triggers of a bundle in a project, or a transport.

    It is given up `OWN_SHARE` of a lease after the last renewal, by the monotonic clock: it has ended here before
    another process can take it. A process does not lead while one that started later runs the bundle with another
    digest: the newest declaration counts.
    """

    member: Member
    name: str
    """The name of the lease."""
    project: str = ""
    bundle: str = ""
    digest: str = ""
    changed: Callable[[Leadership], None] = lambda leadership: None
    """Called after each change."""
    lease: Lease | None = None
    newer: str = ""
    """The process with another version of the bundle that started later; '' without one."""
    _held: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of_triggers(cls, member: Member, project: str, bundle: str, digest: str) -> Leadership:
        """Return that of the triggers of a bundle."""
        return cls(member, f"triggers of {bundle} in {shared_name(member.store, project)}", project, bundle, digest)

    async def run_led(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work whenever this process leads, and cancel it when it leads no longer, until cancelled."""
        while True:
            await self._held.wait()
            async with keep_beside(work, f"work of {self.name}", self.member.report_problem):
                await self._lost.wait()

    async def run(self) -> None:
        """Take and renew the lease until cancelled; then resign."""
        renewed = self.member.clock.monotonic()
        try:
            while True:
                asked = self.member.clock.monotonic()
                try:
                    async with asyncio.timeout(self._rest(renewed)):
                        lease = await self._ask()
                except (StoreUnavailable, TimeoutError):
                    if self.member.clock.monotonic() - renewed >= self.member.claims_for:
                        self._set(None)
                else:
                    renewed = asked
                    self._set(lease)
                await self.member.clock.sleep(min(self.member.lease / 4, self._rest(renewed) or self.member.lease))
        finally:
            await self.resign()

    def _rest(self, renewed: float) -> float | None:
        """Return the seconds until a held lease has to be given up; None without one."""
        if self.lease is None:
            return None
        return max(0.0, renewed + self.member.claims_for - self.member.clock.monotonic())

    async def _ask(self) -> Lease | None:
        """Return the lease, taken or renewed; None while somebody else leads, or should."""
        self.newer = await self._find_newer()
        if self.newer or self.member.draining:
            await self.resign()
            return None
        return await self.member.store.lead(self.name, owner=self.member.process, lease=self.member.lease)

    async def _find_newer(self) -> str:
        present = await self.member.others()
        mine = next((each for each in await self.member.store.processes() if each.process == self.member.process), None)
        for each in present if self.bundle else ():
            digest = (each.facts.get("bundles") or {}).get(self.bundle)
            runs_here = self.project in (each.facts.get("projects") or ()) and each.facts.get("role") == "up"
            if runs_here and digest not in (None, self.digest) and mine is not None and each.started > mine.started:
                return each.process
        return ""

    async def resign(self) -> None:
        """Give the leadership up at once."""
        lease, self.lease = self.lease, None
        self._held.clear()
        self._lost.set()
        if lease is not None:
            try:
                await self.member.store.resign(lease)
            except StoreUnavailable:
                logger.info("the lease '%s' ends by itself: the store cannot be used", lease.name)
            self.changed(self)

    def _set(self, lease: Lease | None) -> None:
        changed = (lease is None) != (self.lease is None)
        self.lease = lease
        if not changed:
            return
        if lease is None:
            self._held.clear()
            self._lost.set()
        else:
            self._lost.clear()
            self._held.set()
        self.changed(self)

    async def wait_until_held(self) -> None:
        """Return when this process leads."""
        await self._held.wait()

    async def wait_until_lost(self) -> None:
        """Return when this process leads no longer."""
        await self._lost.wait()
