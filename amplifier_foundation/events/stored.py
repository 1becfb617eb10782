"""Read the store's log at the reader's own pace, without loss."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import length_hint
from typing import TYPE_CHECKING

from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import Inbox

    from .channel import Channel


LOOK_EVERY = 1.0
"""Seconds between two looks at the log without news: other processes write to it too."""


class StoredSubscription(Subscription):
    """Reads the events stored after `since`, then new ones; the channel only wakes it, other processes do not."""

    def __init__(self, channel: Channel, names: Sequence[str], store: Inbox, since: int) -> None:
        super().__init__(channel, names)
        self._store = store
        self._since = since
        self._fetched = 0
        channel.members.add(self)

    @property
    def lag(self) -> int:
        """How many events of the fetched page wait."""
        return 0 if self.closed else length_hint(self._unread)

    @property
    def delivered(self) -> int:
        """How many events were read."""
        return self._fetched - length_hint(self._unread)

    async def is_read(self) -> bool:
        """Return whether no matching event of the log is unread."""
        return not self.lag and not any(map(self._channel.filter.wants, await self._store.events(since=self._since)))

    @property
    def count(self) -> int:
        """How many matching events this process has published."""
        return self._channel.count

    async def wait_for_news(self, seen: int) -> None:
        """Wait at most `LOOK_EVERY` seconds for an event after the first `seen` of `count`."""
        if self._channel.count == seen and not self.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._channel.news()

    async def _ready(self) -> bool:
        while not self.closed:
            if length_hint(self._unread):
                return True
            seen = self.count
            if not await self._fetch():
                await self.wait_for_news(seen)
        return False

    async def _fetch(self) -> bool:
        """Take the next page of the store's log; return False at its end."""
        since = self._since
        page = await self._store.events(since=since)
        if page and self._since == since:  # another task of this subscription took the page otherwise
            self._since = page[-1].sequence or since
            wanted = [event for event in page if self._channel.filter.wants(event)]
            self._unread = iter(wanted)
            self._fetched += len(wanted)
        return bool(page)
