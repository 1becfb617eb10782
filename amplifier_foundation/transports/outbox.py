"""Publish the log of a store: in order, each event after its commit, from a cursor that the store keeps.

The cursor moves when the broker has the events. A process killed before that publishes them again, under the same ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from amplifier_core.events import SessionEvent
from amplifier_core.log_triggers import is_received
from amplifier_core.permissions.hidden import is_printable
from amplifier_core.utils.secrets import redact_text

from ..events.names import matches
from ..events.stored import StoredSubscription
from ..hookspecs import Message
from . import LOST, OWN, SET_ASIDE
from .wire import LONGEST_NAME, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.storage import DurableStore

    from ..events import EventRouter
    from ..hookspecs import Transport
    from . import Route

logger = logging.getLogger(__name__)

PAGE = 200
"""Events that are published together."""
TIME_LIMIT = 60.0
"""Seconds for the broker to take a page."""
SAVE_EVERY = 1_000
"""Events that are not published, after which the cursor is stored all the same."""


class Outbox:
    """The events of one store for one transport; `store_id` tells the stores apart that call themselves one site.

    `note_carried` is called after each publication.
    """

    def __init__(self, route: Route, store: DurableStore, note_carried: Callable[[], None]) -> None:
        self.store_id = ""
        self._route = route
        self._store = store
        self._note_carried = note_carried
        self._key = f"transport:{route.name}"
        self._begin: int | None = None
        self._since = 0
        self._saved = 0

    async def begin(self) -> None:
        """Note the end of the log: publishing that has never begun begins there, whenever the broker answers."""
        self._begin = await self._store.last_sequence()

    async def load(self) -> None:
        """Read the cursor. The first one is that of `begin`; while nothing is published, it is the end of the log."""
        state = await self._store.trigger_state("", self._key)
        if "sequence" not in state or not self._route.publish:
            if self._begin is None or not self._route.publish:
                await self.begin()
            state = {"store": uuid4().hex, **state, "sequence": self._begin}
            await self._store.save_trigger_state("", self._key, state)
        self._since = self._saved = int(state["sequence"])
        self.store_id = str(state["store"])

    async def count_waiting(self) -> int:
        """Return how many events of the log were not looked at yet."""
        return max(0, await self._store.last_sequence() - self._since)

    async def run(self, transport: Transport, router: EventRouter) -> None:
        """Publish what is in the log, then what comes, until an error."""
        async with router.subscribe(self._route.publish, since=self._since) as log:
            assert isinstance(log, StoredSubscription)  # the router has a store
            while True:
                mark = log.mark
                await self.publish_rest(transport)
                await log.wait_for_news(mark)

    async def publish_rest(self, transport: Transport) -> None:
        """Publish what is in the log."""
        while page := await self._store.events(since=self._since, limit=PAGE):
            await self._note_loss(page[0].sequence or 0)
            messages = [message for event in page if (message := await self._message(event)) is not None]
            if messages:
                async with asyncio.timeout(TIME_LIMIT):
                    refused = await transport.publish(messages)
                if not isinstance(refused, Mapping):
                    raise TypeError(f"publish must return a mapping of ids to reasons, not {type(refused).__name__}")
                ids = {message.id for message in messages}
                for message_id, reason in refused.items():
                    if message_id in ids:
                        await self._set_aside(message_id, f"the broker refuses it: {reason}")
                    else:
                        logger.error("%s: publish refuses %r, which it was not given", self._route.name, message_id)
            self._since = page[-1].sequence or self._since
            if messages or self._since - self._saved >= SAVE_EVERY:
                await self._save()
            if messages:
                self._note_carried()

    async def _message(self, event: SessionEvent) -> Message | None:
        """Return the message of an event; None for one that stays here."""
        if is_received(event) or event.name.startswith(OWN) or not matches(self._route.publish, event.name):
            return None
        message_id = f"{self._route.site}.{event.event_id}"
        try:
            if len(event.name) > LONGEST_NAME or not is_printable(event.name):
                raise ValueError("its name is no name for other sites")
            return Message(message_id, self._route.site, event.name, encode(event, self.store_id))
        except (ValueError, TypeError, RecursionError) as error:
            await self._set_aside(message_id, str(error))
            return None

    async def _set_aside(self, message_id: str, reason: str) -> None:
        text = redact_text(reason)
        logger.error("%s: event %s stays here: %s", self._route.name, message_id.partition(".")[2], text)
        data = {"transport": self._route.name, "message": message_id, "reason": text, "direction": "out"}
        await self._store.emit(SessionEvent(SET_ASIDE, data))

    async def _note_loss(self, first: int) -> None:
        """Report events that retention has removed since the cursor was at `since`."""
        count = first - self._since - 1
        if count > 0:
            logger.error(
                "%s: retention has removed up to %d events before they were published. Raise retention.max_size, or "
                "connect the site more often",
                self._route.name,
                count,
            )
            await self._store.emit(SessionEvent(LOST, {"transport": self._route.name, "count": count}))

    async def _save(self) -> None:
        await self._store.save_trigger_state("", self._key, {"sequence": self._since}, merge=True)
        self._saved = self._since
