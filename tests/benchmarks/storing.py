"""Make samples for any store: sessions with a history, their next turns, and forks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core.storage import SessionRecord

from .measure import awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amplifier_core.storage import SessionStore

    from .measure import Sample

SHORT, LONG, LONGEST = 10, 10_000, 100_000
"""Messages of a history."""
CALLS, ROUNDS = 20, 15
MESSAGE = {"role": "user", "content": "x" * 200}
TURN = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": "y" * 1000}]


@asynccontextmanager
async def closing_store(store: SessionStore) -> AsyncIterator[SessionStore]:
    """Close `store` at the end of the block."""
    try:
        yield store
    finally:
        await store.close()


async def session(store: SessionStore, name: str, messages: int) -> None:
    """Store a session with a history of so many messages."""
    await store.create(SessionRecord(name))
    await store.append(name, [MESSAGE] * messages, at=0)


def next_turns(store: SessionStore, names: Iterator[str]) -> Sample:
    """Return a sample of the next turn of sessions nobody has continued yet."""
    return awaited(lambda: store.append(next(names), TURN, at=SHORT), CALLS)


def more_turns(store: SessionStore, name: str) -> Sample:
    """Return a sample of one more turn of a session."""

    async def sample() -> float:
        at = (await store.get(name)).message_count
        start = perf_counter()
        for _ in range(CALLS):
            at = await store.append(name, TURN, at=at)
        return (perf_counter() - start) / CALLS

    return sample


def forking(store: SessionStore, source: str) -> Sample:
    """Return a sample of one more fork of a session."""
    numbers = count()

    async def fork() -> Any:
        return await store.create(SessionRecord(f"{source}-{next(numbers)}", parent_id=source, fork_of=source))

    return awaited(fork, CALLS)
