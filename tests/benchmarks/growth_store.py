"""Measure how the embedded store's costs grow with forks, forks of forks, messages and deliveries."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from amplifier_core.storage import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_sqlite import open_sqlite, sessions
from amplifier_storage_sqlite.rows import SESSIONS

from .grown import PROJECT, QUEUE, TRIGGER, grown_store
from .measure import FLAT, LINEAR, Figure, awaited, curve, in_turns
from .storing import MESSAGE, TURN, closing_store, in_folder, store_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from amplifier_core.storage import DurableStore, SessionStore
    from amplifier_storage_sqlite.store import SqliteStore

    from .measure import Row, Sample

FORKS = (10, 300, 10_000, 100_000)
DEPTHS = (1, 10, 100, 1_000)
MESSAGES = (10, 500, 20_000, 1_000_000)
DELIVERIES = (100, 5_000, 200_000, 10_000_000)
OWN = 10
"""Messages of each level of forks of forks, and those that are read."""
CALLS, ROUNDS = 5, 11
FEW = 100
"""Sizes up to this one would grow by the measurement itself: each call has a session of its own."""
STEPS = ("enqueue", "claim", "commit")


async def _forks(folder: Path) -> AsyncIterator[Row]:
    """Fork a session that has many forks once more."""
    async with store_in(folder) as opened:
        store = cast("SqliteStore", opened)
        samples = []
        for size in FORKS:
            names = await _make_sources(store, size)
            samples.append(_forking(store, names, size))
        figures = await in_turns(*samples, rounds=ROUNDS)
    yield curve("one more fork of a session with forks", list(zip(FORKS, figures, strict=True)), FLAT)


async def _make_sources(store: SqliteStore, size: int) -> list[str]:
    names = _names(f"of-{size}", size)
    for name in names:
        await store.create(SessionRecord(name))
        await store.append(name, [MESSAGE] * OWN, at=0)
        records = [SessionRecord(f"{name}-{n}", parent_id=name, fork_of=name, fork_at=OWN) for n in range(size)]
        rows = list(map(SESSIONS.row, records))
        await store._writer.run(lambda db, rows=rows: [sessions.create(db, row) for row in rows] and None)  # type: ignore[misc]
    return names


def _forking(store: SessionStore, names: Sequence[str], size: int) -> Sample:
    following, numbers = cycle(names), iter(range(size, size + 1_000_000))

    async def fork() -> None:
        name = next(following)
        await store.create(SessionRecord(f"{name}-{next(numbers)}", parent_id=name, fork_of=name))

    return awaited(fork, CALLS)


async def _depths(folder: Path) -> AsyncIterator[Row]:
    """Read messages of a fork of a fork of a fork: its own, and those of the session at the root.

    A read follows the histories from the fork to the first message that it wants. So the newest messages cost the same
    at any depth; the oldest ones cost a look-up in an index for each level between.
    """
    async with store_in(folder) as store:
        await store.create(SessionRecord("level-0"))
        await store.append("level-0", [MESSAGE] * OWN, at=0)
        for level in range(1, DEPTHS[-1] + 1):
            above, name = f"level-{level - 1}", f"level-{level}"
            await store.create(SessionRecord(name, parent_id=above, fork_of=above))
            await store.append(name, [MESSAGE] * OWN, at=OWN * level)
        own = [_reading(store, f"level-{depth}", OWN * depth) for depth in DEPTHS]
        first = [_reading(store, f"level-{depth}", 0) for depth in DEPTHS]
        figures = await in_turns(*own, *first, rounds=ROUNDS)
    newest, oldest = figures[: len(DEPTHS)], figures[len(DEPTHS) :]
    yield curve(f"read the newest {OWN} messages, forks of forks", list(zip(DEPTHS, newest, strict=True)), FLAT)
    yield curve(f"read the oldest {OWN} messages, forks of forks", list(zip(DEPTHS, oldest, strict=True)), LINEAR)


async def _messages(folder: Path) -> AsyncIterator[Row]:
    """Append one more turn to a long session, and read its end."""
    async with store_in(folder) as store:
        turns, tails = [], []
        for size in MESSAGES:
            names = _names(f"of-{size}", size)
            for name in names:
                await _fill(store, name, size)
            turns.append(_turning(store, names, size))
            tails.append(_reading(store, names[0], size - OWN))
        figures = await in_turns(*turns, *tails, rounds=ROUNDS)
    turned, read = figures[: len(MESSAGES)], figures[len(MESSAGES) :]
    yield curve("one more turn of 2 KB, messages", list(zip(MESSAGES, turned, strict=True)), FLAT)
    yield curve(f"read the last {OWN} messages, messages", list(zip(MESSAGES, read, strict=True)), FLAT)


async def _fill(store: SessionStore, name: str, size: int, step: int = 50_000) -> None:
    await store.create(SessionRecord(name))
    for at in range(0, size, step):
        await store.append(name, [MESSAGE] * min(step, size - at), at=at)


def _turning(store: SessionStore, names: Sequence[str], size: int) -> Sample:
    following = cycle(names)
    counts = dict.fromkeys(names, size)

    async def turn() -> None:
        name = next(following)
        counts[name] = await store.append(name, TURN, at=counts[name])

    return awaited(turn, CALLS)


def _reading(store: SessionStore, name: str, start: int) -> Sample:
    return awaited(lambda: store.read(name, start, start + OWN), 10 * CALLS)


async def _deliveries(folder: Path) -> AsyncIterator[Row]:
    """Enqueue, claim and commit one more delivery in stores that keep many finished ones."""
    taken: dict[int, list[tuple[float, ...]]] = {size: [] for size in DELIVERIES}
    async with AsyncExitStack() as stack:
        samples = []
        for size in DELIVERIES:
            path = await grown_store(size, folder)
            store = await stack.enter_async_context(closing_store(open_sqlite({"path": path})))
            samples.append(_delivering(cast("DurableStore", store), taken[size]))
        await in_turns(*samples, rounds=ROUNDS)
    for index, step in enumerate(STEPS):
        points = [(size, Figure(each[index] for each in taken[size][1:])) for size in DELIVERIES]
        yield curve(f"{step} one more delivery, finished ones kept", points, FLAT)


def _delivering(store: DurableStore, taken: list[tuple[float, ...]]) -> Sample:
    """Return a sample that adds the seconds of each of `STEPS` to `taken`."""

    async def deliver() -> float:
        seconds = [0.0] * len(STEPS)
        for _ in range(CALLS):
            event = TriggerEvent(TriggerType.TIMER, "trigger-timer", dedupe_key=f"again-{uuid4().hex}")
            started = perf_counter()
            await store.enqueue(PROJECT, QUEUE, TRIGGER, event)
            enqueued = perf_counter()
            delivery = await store.claim(PROJECT, QUEUE, owner="bench", lease=60, session_id="queue-one-more")
            claimed = perf_counter()
            assert delivery is not None
            await store.commit(delivery)
            moments = (started, enqueued, claimed, perf_counter())
            seconds = [
                each + after - before for each, before, after in zip(seconds, moments, moments[1:], strict=False)
            ]
        taken.append(tuple(each / CALLS for each in seconds))
        return sum(seconds) / CALLS

    return deliver


def _names(name: str, size: int) -> list[str]:
    """Return the sessions of one size: one, or of a small size one for each call."""
    return [f"{name}-{number}" for number in range(CALLS * (ROUNDS + 1))] if size <= FEW else [name]


PARTS = tuple(map(in_folder, (_forks, _depths, _messages, _deliveries)))
