"""Follow the log of events for a trigger: its place in the log, its wait, and its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from .errors import StoreUnavailable, TriggerError
from .triggers import TriggerContext

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from typing import Literal

    from .events import SessionEvent
    from .triggers import TriggerEvent


OF_SITE = "site:"
"""Begins the `project` of an event that another site has sent: `site:berlin`."""
SAVE_AFTER = 1_000
"""Events that may pass without one that fires before the place is saved: a restart reads so many again."""
LOOK_EVERY = 60.0
"""Seconds between two looks at how many have passed a trigger that waits."""


def is_received(event: SessionEvent) -> bool:
    """Return whether an event came from another site."""
    return (event.project or "").startswith(OF_SITE)


class Router(Protocol):
    """A router of events without a log: `EventRouter()`, or one of another program."""

    def subscribe(
        self, event_names: Sequence[str], source_sessions: Sequence[str] | None = None, queue_size: int | None = 100
    ) -> AsyncIterator[SessionEvent]:
        """Yield matching events from this call on."""
        ...


class LogTrigger(ABC):
    """A trigger by events of sessions; a stopped one does not start again.

    With `bind`, it follows a log: the sequence of the last event rides on each event as state, so a restart goes on
    after it. Where none fires for long, the place is saved alone. With `set_event_router` alone, it follows a router
    without a log, from now on. A subclass sets `name`, and in `configure` the `names` and `sources` to follow.
    """

    name: str
    names: Sequence[str]
    """Names of events, prefixes (`work:*`) or `*`."""
    sources: Sequence[str] | None = None
    """The sessions to follow; None: all."""
    no_events = "there are no session events to follow here"
    """The error without a log and a router."""

    def __init__(self) -> None:
        import asyncio

        self.context = TriggerContext(self.name)
        self._armed = asyncio.Event()
        self._stopped = False
        self._waiting: asyncio.Future[SessionEvent | None] | None = None
        self._router: Router | None = None
        self._saved = 0

    @abstractmethod
    def read(self, event: SessionEvent) -> TriggerEvent | None:
        """Return the event to wake with; None for one that does not fire."""

    async def look_back(self) -> Sequence[TriggerEvent]:
        """Return what happened before the very first start and still counts; by default nothing."""
        return ()

    def bind(self, context: TriggerContext) -> None:
        """Take the log of events, and the state of the last one."""
        self.context = context

    def set_event_router(self, router: Router) -> None:
        """Follow a router if `bind` gave no log: from now on, and with no memory of a restart."""
        self._router = router

    async def ready(self) -> None:
        """Return when the trigger follows events, or has ended."""
        await self._armed.wait()

    def caught_up(self) -> bool:
        """Return whether it waits for the next event: those it has read are yielded, and stored."""
        return self._waiting is not None and not self._waiting.done()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each one since the last, then for new ones; at the very first start, for new ones only.

        Raises `TriggerError` if there is neither a log nor a router.
        """
        try:
            since = self.context.state.get("sequence")
            if since is None and self.context.events is not None:
                since = await self.context.events.position()
                for missed in await self.look_back():
                    yield missed
                await self.context.save_state({"sequence": since})
            self._saved = since or 0
            stream = self._follow(since)
            self._armed.set()
            try:
                while (event := await self._next(stream)) is not None:
                    if (read := self.read(event)) is not None:
                        yield read
                        self._saved = event.sequence or 0
                    else:
                        await self._save_place(event.sequence)
            finally:
                if (aclose := getattr(stream, "aclose", None)) is not None:
                    await aclose()
                elif (close := getattr(stream, "close", None)) is not None:
                    close()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`, also while it waits."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _follow(self, since: int | None) -> AsyncIterator[SessionEvent]:
        if self.context.events is not None:
            events = self.context.events
            follow = getattr(events, "follow_log", events.follow)  # a log may tell how far a follower has read
            stream: AsyncIterator[SessionEvent] = follow(self.names, sources=self.sources, since=since)
            return stream
        if self._router is not None:
            return self._router.subscribe(self.names, self.sources, None)
        raise TriggerError(self.name, self.no_events)

    async def _next(self, stream: AsyncIterator[SessionEvent]) -> SessionEvent | None:
        """Return the next event; None at the end of the stream, or after `stop`."""
        import asyncio

        if not self._stopped:
            waiting = self._waiting = asyncio.ensure_future(anext(stream, None))
            try:
                while not (await asyncio.wait((waiting,), timeout=LOOK_EVERY))[0]:
                    await self._save_place(getattr(stream, "passed", None))
            finally:
                if not waiting.done():  # a stream closes only while nobody waits in it
                    waiting.cancel()
                    await asyncio.wait((waiting,))
            if not waiting.cancelled():
                return None if self._stopped else waiting.result()
        await self._save_place(getattr(stream, "passed", None))
        return None

    async def _save_place(self, sequence: int | None) -> None:
        """Save where a restart goes on, if many events have passed since; all before it are stored."""
        if sequence is not None and sequence - self._saved >= SAVE_AFTER:
            with suppress(StoreUnavailable):  # without it a restart reads more, and loses nothing
                await self.context.save_state({"sequence": sequence}, merge=True)
                self._saved = sequence


def find_projects(origin: Literal["project", "any"] | Sequence[str], home: Path) -> frozenset[str] | None:
    """Return the projects whose events count: `project` is `home`, a list has folders below it, and sites as
    `site:berlin`; None for `any`.
    """
    from pathlib import Path

    if origin == "any":
        return None
    folders = ["."] if origin == "project" else origin
    return frozenset(
        each if each.startswith(OF_SITE) else str((home / Path(each).expanduser()).resolve()) for each in folders
    )
