"""The log of one channel: blocks of events, each freed with the last reader that has not passed it."""

from __future__ import annotations

import pickle
from collections import deque
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING
from weakref import ref

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1024
"""Events in a block."""
LOOSE = 4
"""Blocks behind the newest that stay as they are: who reads there is not slow."""

_values = attrgetter(*SessionEvent.__slots__)


class Block:
    """Events that follow each other, and the block after them; `start` is the position of the first."""

    __slots__ = ("__weakref__", "_events", "_packed", "next", "start")

    def __init__(self, start: int, events: Sequence[SessionEvent] = ()) -> None:
        self.start = start
        self.next: Block | None = None
        self._events: list[SessionEvent] | None = list(events)
        self._packed = b""

    @property
    def events(self) -> list[SessionEvent]:
        """The list itself while the block is written to; afterwards perhaps a copy."""
        if self._events is not None:
            return self._events
        return [SessionEvent(*values) for values in pickle.loads(self._packed)]

    def pack(self) -> None:
        """Keep the events as bytes, in a fourth of the memory; what cannot be written so stays as it is."""
        if self._events is not None:
            with suppress(Exception):  # a payload may hold anything that can be copied
                self._packed = pickle.dumps([_values(event) for event in self._events], pickle.HIGHEST_PROTOCOL)
                self._events = None


class Log:
    """What was published, from the oldest block that somebody still reads; `tail` is the block that is written to."""

    __slots__ = ("_recent", "tail")

    def __init__(self, backlog: Sequence[SessionEvent] = ()) -> None:
        self._recent: deque[ref[Block]] = deque()
        self.tail = Block(0, backlog)

    def turn(self, count: int) -> None:
        """Begin a block at position `count`, and pack the one that is `LOOSE` blocks behind, if anybody needs it."""
        full, self.tail = self.tail, Block(count)
        full.next = self.tail
        self._recent.append(ref(full))
        if len(self._recent) > LOOSE:
            behind = self._recent.popleft()()
            if behind is not None:
                behind.pack()
