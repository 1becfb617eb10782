"""Define the contract of a store that several hosts use at once.

A host is a data folder; several processes may run on it. Each process has a name, unique for good, that ends with
`@HOST`. A store that implements `SharedStore` answers what one host cannot know: the time, who leads, who is there.

* Time. Only the clock of the store decides: every stored time is in its time, as `now` tells it. A caller that gives a
  `now` has asked the store for it.
* Fences. A worker writes through `fenced(delivery)`: each of its writes checks the claim in the same transaction.
* Leases. `lead` gives one owner a name for a while. Its epoch grows with each new owner, and `enqueue` checks it.
* Projects. A folder may have another path on each host. A store that knows them answers with the path on the asking
  host, also in `Presence.facts`; its `shared_name(project)`, if it has one, is the same on all, for names of leases.
* Hints. `listen` tells of news as soon as it can; hints may be lost or late, so a listener looks by itself, too.

`amplifier_core.testing.store_checks.shared` tests a store against this contract, with two store objects in two
processes.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .contracts import Contract
from .frozen import frozen
from .ids import host_of
from .storage import Delivery, DurableStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from .events import SessionEvent
    from .storage import Admission
    from .triggers import TriggerEvent
__all__ = ["Bounds", "Lease", "Presence", "ReceivingStore", "SharedDelivery", "SharedStore", "host_of"]


@frozen
class Lease:
    """A name that `owner`, a process, holds until a time of the store's clock."""

    name: str
    owner: str
    epoch: int
    until: datetime


@frozen
class Presence:
    """One process at work, as it described itself; `seen` is the time of its last sign, of the store's clock.

    `facts` is JSON: `name` (of the machine), `pid`, `version`, `role` (`up`, `worker` or `run`), `projects`, `bundles`
    (name: digest), `draining`, `lease`, the seconds that its claims hold without being renewed, and `lost` (delivery:
    its claims that were lost while the store could not be used).
    """

    process: str
    host: str
    started: datetime
    seen: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)


@frozen
class SharedDelivery(Delivery):
    """A delivery as a shared store returns it."""

    owners: Sequence[str] = ()
    """The processes that claimed it, the last one at the end; of many, the last 20."""
    only_on: str | None = None
    """The only host that may claim it; None: any."""


@frozen
class Bounds:
    """The bounds of a queue that count on all hosts together.

    At most `running` deliveries are claimed at a time (None: any number), and at most `begun` claims are made within
    `period` seconds (None: any number).
    """

    running: int | None = None
    begun: int | None = None
    period: float = 0.0


@runtime_checkable
class SharedStore(DurableStore, Protocol, metaclass=Contract):
    """Keep sessions, events and deliveries for several hosts."""

    # The time.

    async def now(self) -> datetime:
        """Return the time of the store's clock."""
        ...

    # Claims: those of `Inbox`, with what counts between hosts.

    def fenced(self, delivery: Delivery) -> SharedStore:
        """Return the store as the worker with this claim may use it.

        `create`, `append`, `update`, `delete`, `emit`, `write_documents` and `save_trigger_state` raise `StaleEpoch`,
        and change nothing, as soon as the delivery is no longer claimed under its epoch. Closing it changes nothing.
        """
        ...

    async def enqueue(
        self,
        project: str,
        queue: str,
        trigger: str,
        event: TriggerEvent,
        *,
        refused: str | None = None,
        admission: Admission | None = None,
        now: datetime | None = None,
        leader: Lease | None = None,
        only_on: str | None = None,
    ) -> Delivery | None:
        """Do as `Inbox.enqueue`; with `leader`, raise `StaleEpoch` and store nothing unless that lease still holds.

        A delivery with `only_on`, a host, is claimed on that host alone.
        """
        ...

    async def claim(
        self,
        project: str,
        queue: str,
        *,
        owner: str,
        lease: float,
        session_id: str,
        now: datetime | None = None,
        bounds: Bounds | None = None,
    ) -> Delivery | None:
        """Do as `Inbox.claim`, for `lease` seconds and within `bounds`; `owner` is a process.

        Deliveries for other hosts are left to them.
        """
        ...

    async def reserve(self, project: str, name: str, limit: int, period: float) -> float:
        """Take the first free place of a rate of `limit` within `period` seconds; return the seconds until it.

        All hosts take places of the rate with this name.
        """
        ...

    async def release(self, project: str, *, owners: Collection[str] | None = None) -> int:
        """Do as `Inbox.release` for the claims of these processes, which are dead."""
        ...

    async def adopt(self, host: str, by: str) -> int:
        """Give the deliveries that only `host` may claim to the host `by`; return their number. That host is gone.

        The states of triggers that end with `@HOST` are its own, and may be forgotten.
        """
        ...

    # Leases of names.

    async def lead(self, name: str, *, owner: str, lease: float) -> Lease | None:
        """Take a free name for `lease` seconds, or extend the own lease; None while somebody else holds it.

        An own lease that has ended and was not taken since is extended with its epoch.
        """
        ...

    async def resign(self, lease: Lease) -> None:
        """Free the name at once; nothing if the lease is no longer held."""
        ...

    async def leases(self) -> list[Lease]:
        """Return the leases that hold, in the order of their names."""
        ...

    # Processes.

    async def present(self, process: str, facts: Mapping[str, Any]) -> None:
        """Record a sign of this process and its facts."""
        ...

    async def absent(self, process: str) -> None:
        """Forget this process: it ends, or it is dead."""
        ...

    async def processes(self) -> list[Presence]:
        """Return every process that is not forgotten, in the order of their start."""
        ...

    # Hints.

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told`, in any thread, after another process has stored something; return a function that ends this."""
        ...


@runtime_checkable
class ReceivingStore(Protocol, metaclass=Contract):
    """Take in events of another site, which has a store of its own."""

    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        """Append an event to the log as `emit` does, with its id; None if it came from this `origin` before.

        The ids that came are kept as long as the events themselves, and at least 30 days.
        """
        ...
