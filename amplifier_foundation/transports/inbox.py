"""Take in the events of other sites: into the log, once, and then acknowledge them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from amplifier_core.events import SessionEvent
from amplifier_core.permissions.hidden import show_hidden
from amplifier_core.shared_stores import ReceivingStore
from amplifier_core.utils.secrets import redact_text

from ..events.names import matches
from . import SET_ASIDE
from .wire import UnreadableMessage, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore

    from ..events import EventRouter
    from ..hookspecs import Message, Transport
    from . import Route
    from .outbox import Outbox

logger = logging.getLogger(__name__)

SHOWN = 500
"""Bytes of an unreadable message that are kept."""


class Inbox:
    """The messages of other sites for one store; `note_carried` is called after each new one."""

    def __init__(
        self,
        route: Route,
        store: DurableStore,
        outbox: Outbox,
        clock: Clock,
        report: Callable[[str], None],
        note_carried: Callable[[], None],
    ) -> None:
        self._route = route
        self._store = store
        self._outbox = outbox
        self._clock = clock
        self._report = report
        self._note_carried = note_carried
        self._began = clock.now()
        self.has_reported = False

    async def run(self, transport: Transport, router: EventRouter) -> None:
        """Take in messages until an error. Raises `ConnectionError` when the transport yields no more."""
        async for received in transport.receive():
            try:
                message, acknowledge = received
            except (TypeError, ValueError):
                kind = type(received).__name__
                raise TypeError(f"receive must yield pairs (message, acknowledge), not {kind}") from None
            is_new = False
            try:
                is_new = await self._take(message, router)
            except UnreadableMessage as problem:
                await self._set_aside(message, str(problem))
            except (TypeError, ValueError) as problem:
                await self._set_aside(message, f"the store does not take it: {problem}")
            await acknowledge()
            if is_new:
                self._note_carried()
        raise ConnectionError("the connection has ended")

    async def _take(self, message: Message, router: EventRouter) -> bool:
        """Store a message, and return whether it is new here."""
        if message.site == self._route.site:
            self._look_for_namesake(message)
        elif matches(self._route.subscribe, message.name):
            assert isinstance(self._store, ReceivingStore)  # the carrier has looked
            event = decode(message, self._clock.now()).event
            stored = await self._store.receive(event, message.site)
            if stored is not None:
                router.publish(stored)
                return True
        return False

    def _look_for_namesake(self, message: Message) -> None:
        """Report another store that publishes under the name of this site: each misses the events of the other."""
        letter = decode(message, self._clock.now())
        is_new = letter.event.timestamp > self._began  # an older one may come from a store that was here before
        if is_new and letter.store != self._outbox.store_id and not self.has_reported:
            self.has_reported = True
            self._report(
                f"another store publishes as site '{message.site}', and neither receives the events of the other. "
                "Give one of them another name: site, in the setting transports"
            )

    async def _set_aside(self, message: Message, reason: str) -> None:
        """Record a message that nobody can read: it comes no more."""
        said = {"message": message.id, "site": message.site, "name": message.name, "reason": reason}
        said["body"] = message.body[:SHOWN].decode(errors="replace")
        shown = {key: show_hidden(redact_text(text))[: 2 * SHOWN] for key, text in said.items()}
        logger.error(
            "%s: a message of site '%s' is set aside: %s", self._route.name, shown["site"][:80], shown["reason"]
        )
        await self._store.emit(SessionEvent(SET_ASIDE, {"transport": self._route.name, **shown, "direction": "in"}))
