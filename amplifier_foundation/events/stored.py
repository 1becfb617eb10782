"""A reader of the store's log: it goes at its own pace and loses nothing, whatever it missed."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING

from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import Inbox

    from .channel import Channel


class StoredSubscription(Subscription):
    """Reads what was stored after `since`, then what comes; the channel only says that something came."""

    def __init__(self, channel: Channel, names: Sequence[str], store: Inbox, since: int) -> None:
        super().__init__(channel, names)
        self._store = store
        self._since = since
        self._fetched = 0
        channel.members.add(self)

    @property
    def lag(self) -> int:
        """How many events wait of those that were fetched from the store."""
        return 0 if self.closed else length_hint(self._unread)

    @property
    def delivered(self) -> int:
        """How many events were read."""
        return self._fetched - length_hint(self._unread)

    async def _ready(self) -> bool:
        while not self.closed:
            if length_hint(self._unread):
                return True
            seen = self._channel.count
            if not await self._fetch() and self._channel.count == seen and not self.closed:
                await self._channel.news()
        return False

    async def _fetch(self) -> bool:
        """Take the next page of the store's log; return False at its end."""
        since = self._since
        page = await self._store.events(since=since)
        if page and self._since == since:  # else somebody else who reads this subscription took it
            self._since = page[-1].sequence or since
            wanted = [event for event in page if self._channel.filter.wants(event)]
            self._unread = iter(wanted)
            self._fetched += len(wanted)
        return bool(page)
