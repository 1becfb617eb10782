"""Look at the end of a store's log for all who wait for its news."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

if TYPE_CHECKING:
    from amplifier_core.storage import Inbox

LOOK_EVERY = 1.0
"""Seconds between two looks: other processes write to the log too."""


class LogLook:
    """Wakes those who wait when other processes have written to the log.

    One of them, the keeper, looks for all; whoever waits while there is no keeper becomes it, and a keeper that leaves
    wakes another one for that; as that one may leave too, somebody asks again later. So an idle process looks once a
    second, however many readers it has.
    """

    def __init__(self, store: Inbox) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._keeper: asyncio.Future[None] | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._own: set[int] = set()
        self.end = -1
        """The last sequence of the log at the last look. Who reads the log afterwards misses nothing up to it."""

    def note(self, sequence: int | None) -> None:
        """Take an event that this process has stored and published: it is no news of a look."""
        if self._waiting and sequence is not None:
            self._own.add(sequence)

    async def wait(self, news: asyncio.Future[None]) -> None:
        """Return when `news` is there, by its owner or by a look; or without news, then read the log, and wait again.

        When the store cannot be used, all return: each reader finds out for itself.
        """
        self._waiting[news] = None
        try:
            if self._keeper is None:
                self._keeper = news
                await self._look_for_all(news)
            else:
                await news
        finally:
            del self._waiting[news]
            news.cancel()  # its owner forgets it then
            if self._keeper is news:
                self._keeper = None
                self._find_keeper()

    async def _look_for_all(self, news: asyncio.Future[None]) -> None:
        while not (await asyncio.wait((news,), timeout=LOOK_EVERY))[0]:
            try:
                before, self.end = self.end, await self._store.last_sequence()
            except StoreUnavailable:
                self._wake(list(self._waiting))
                continue
            own, self._own = self._own, {sequence for sequence in self._own if sequence > self.end}
            if self.end - before > sum(before < sequence <= self.end for sequence in own):
                self._wake(list(self._waiting))

    def _find_keeper(self) -> None:
        """Wake one who waits to become the keeper, and ask again in a while whether there is one."""
        heir = next((each for each in self._waiting if not each.done()), None)
        if heir is not None:
            heir.set_result(None)
            if self._asking is None:
                self._asking = heir.get_loop().call_later(LOOK_EVERY, self._ask_for_keeper)

    def _ask_for_keeper(self) -> None:
        self._asking = None
        if self._keeper is None:
            self._find_keeper()

    def _wake(self, waiting: list[asyncio.Future[None]]) -> None:
        for each in waiting:
            if not each.done():
                each.set_result(None)
