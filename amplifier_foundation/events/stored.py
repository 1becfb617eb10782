"""Read the store's log at the reader's own pace, without loss."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING

from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.storage import Inbox

    from .channel import Channel
    from .looking import LogLook


class StoredSubscription(Subscription):
    """Reads the events stored after `since`, then new ones; the channel wakes it, and for other processes the look."""

    def __init__(self, channel: Channel, names: Sequence[str], store: Inbox, since: int, look: LogLook) -> None:
        super().__init__(channel, names)
        self._store, self._look = store, look
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

    @property
    def passed(self) -> int | None:
        """The sequence up to which every event was yielded or is not wanted; None while fetched ones wait."""
        return None if length_hint(self._unread) else self._since

    async def is_read(self) -> bool:
        """Return whether no matching event of the log is unread."""
        return not self.lag and not any(map(self._channel.filter.wants, await self._store.events(since=self._since)))

    @property
    def mark(self) -> tuple[int, int]:
        """How many matching events this process has published, and the end of the log at the last look."""
        return self._channel.count, self._look.end

    async def wait_for_news(self, mark: tuple[int, int]) -> None:
        """Wait for an event since the `mark`, which the caller has read before the log; it may return without one."""
        if self.mark == mark and not self.closed:
            await self._look.wait(self._channel.news())

    async def _ready(self) -> bool:
        while not self.closed:
            if length_hint(self._unread):
                return True
            mark = self.mark
            if not await self._fetch():
                await self.wait_for_news(mark)
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
