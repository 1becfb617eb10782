"""Declare the hooks of the foundation; plugins implement them like those of `amplifier_core.hookspecs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.frozen import frozen
from amplifier_core.hookspecs import hookspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import TypeAlias

    from amplifier_core.documents import DocumentEdit, Documents
    from amplifier_core.hookspecs import Register
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore

    Serve: TypeAlias = Callable[[Mapping[str, Any], "ServerContext"], AbstractAsyncContextManager[str]]
    TrackerFactory: TypeAlias = Callable[[Mapping[str, Any]], "WorkTracker"]
    IsReleased: TypeAlias = Callable[[str, str], bool]
    SandboxFactory: TypeAlias = Callable[[str, IsReleased, Callable[[], bool]], "Sandbox"]
    TransportFactory: TypeAlias = Callable[[Mapping[str, Any]], "Transport"]
    Acknowledge: TypeAlias = Callable[[], Awaitable[None]]


class Launch(Protocol):
    """A process to start."""

    @property
    def argv(self) -> Sequence[str]:
        """Its arguments, the program first."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Its whole environment."""
        ...

    @property
    def descriptors(self) -> Sequence[int]:
        """What it inherits besides; the starter closes them afterwards."""
        ...


class Sandbox(Protocol):
    """Confines one process in a working folder. All methods block."""

    def launch(self, argv: Sequence[str], readable: Sequence[str]) -> Launch:
        """Return the confined process that runs `argv`, and reads the files and folders `readable` besides.

        It inherits the descriptors of its starter. Raises an error with the remedy where no sandbox holds.
        """
        ...

    def is_current(self) -> bool:
        """Return whether a new process would be confined in the same way: nothing to guard came or changed."""
        ...

    def look_again(self) -> list[str]:
        """Make new files harmless that programs would obey; return a sentence about each."""
        ...

    def close(self) -> None:
        """Delete what the sandbox needed; its process has ended."""
        ...


class WorkTracker(Protocol):
    """Keeps pieces of work in step with the deliveries of the background sessions that do them (`tracker: NAME`).

    `begin` writes by itself; what `finish` and `give_up` return is written in the transaction that ends the delivery.
    All of them may be called again for the same delivery after a crash. Raises `DocumentConflict` while others change
    the same documents: it is called again then. Any other error, and any other answer, is a failed attempt at the
    delivery; one of `give_up` is logged, and the delivery is given up without its edit.

    A tracker may also have `refresh(documents, delivery)`, which returns the data of the delivery's event with the work
    as it is when it begins, and `find_withdrawal(documents, delivery)`, which returns why finished work is not wanted
    any more, None if it is. Work that is not wanted is not merged.
    """

    async def begin(self, documents: Documents, delivery: Delivery) -> str | None:
        """Mark the work of a delivery as begun by its session; return why it is not to be done, None if it is."""
        ...

    async def finish(self, documents: Documents, delivery: Delivery, outcome: Mapping[str, Any]) -> DocumentEdit:
        """Return the edit for work that is done; `outcome` is the data of its `session:completed`."""
        ...

    async def give_up(self, documents: Documents, delivery: Delivery, reason: str) -> DocumentEdit:
        """Return the edit for work that has failed for good."""
        ...

    async def recover(self, documents: Documents, queue: str, live: Collection[str]) -> Sequence[str]:
        """Free the work of a queue whose session is none of `live`: nobody goes on with it. Return what was freed."""
        ...


@frozen
class Message:
    """An event on its way to other sites; only the foundation writes and reads `body`, which is JSON."""

    id: str
    """The same at each attempt: a broker may drop the second."""
    site: str
    """The site that sends it; on a received message, the one that the broker vouches for."""
    name: str
    """The name of the event, such as `work:done`."""
    body: bytes


class Transport(Protocol):
    """Carries events to other sites and back over one connection; after any error, a new transport is made."""

    async def open(self, site: str, names: Sequence[str]) -> None:
        """Connect as `site`, which receives events of these names: exact ones, prefixes (`work:*`) or `*`.

        Changes nothing at the broker.
        """
        ...

    async def publish(self, messages: Sequence[Message]) -> Mapping[str, str]:
        """Return when the broker has the messages durably, in their order. After an error all of them come again.

        The result says by id which of them the broker will never take, and why.
        """
        ...

    def receive(self) -> AsyncIterator[tuple[Message, Acknowledge]]:
        """Yield the messages of the wanted names, in the order of each site; acknowledged ones come no more.

        The one that is not acknowledged comes again after an error, before those behind it. Messages of `site` itself
        and of other names are ignored. Without `names`, it yields nothing. Raises when the connection is lost. It is
        called once.
        """
        ...

    async def close(self) -> None:
        """End the connection. Idempotent; also after a failed `open`."""
        ...


@frozen
class ServerContext:
    """What a server beside `up` works with."""

    store: DurableStore
    """The store of the background sessions; it may be called from the loop of the server."""
    plugins: Plugins


@hookspec
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Offer bundles of the package: `register("foreman", Path(__file__).parent / "bundles")`.

    A bundle is a folder with a `bundle.md`, or a file. Users write `foreman`, and `foreman:workers/coding` for a file
    in the folder.
    """


@hookspec
def amplifier_register_checkup(register: Register[Callable[[], Iterable[Mapping[str, str]]]]) -> None:
    """Offer a check of `amplifier doctor`: `register("sandbox", describe_sandbox)`.

    The check changes nothing. It returns mappings with `part`, `state` (`ok`; `weak`: should be mended; `off`: not in
    use), `fact`, and perhaps `remedy`. What it says of the part `sandbox` stands for the sandbox of this machine.
    """


@hookspec
def amplifier_register_sandbox(register: Register[SandboxFactory]) -> None:
    """Offer a sandbox for tools with `sandbox: true`: `register("sandbox", make_sandbox)`.

    The factory is called for each process with the working folder and two functions: `is_released("read" or "write",
    path)` says whether the person's own rules release a guarded file, `is_read_only()` whether nothing may be written.
    """


@hookspec
def amplifier_register_server(register: Register[Serve]) -> None:
    """Offer a server that runs beside `up`: `register("dashboard", serve)`, started with `up --serve dashboard`.

    `serve(config, context)` is an async context manager: it yields the address that the person is shown, when the
    server answers, and serves while its block runs, in the event loop of `up`. `config` is that of the setting
    `servers`. What it raises before the yield says the remedy. When the server fails later, it raises from within its
    block, as `asyncio.TaskGroup` does; it is started anew after a pause. When `up` ends, it has ten seconds to end.
    Long computations belong into threads.
    """


@hookspec
def amplifier_register_tracker(register: Register[TrackerFactory]) -> None:
    """Offer a tracker of work: `register("issue", IssueTracker)`.

    A background session names it with `tracker: issue`, or `tracker: {name: issue, config: {…}}`. The factory is called
    with the config at its start, and raises `ValueError`, with the key, for one that cannot work.
    """


@hookspec
def amplifier_register_transport(register: Register[TransportFactory]) -> None:
    """Offer a transport of events to other sites: `register("transport-nats", NatsTransport)`.

    The factory is called for each connection with the `config` of the setting `transports`, its secrets in place. It
    connects to nothing, and raises `ValueError`, with the key, for a config that cannot work.
    """
