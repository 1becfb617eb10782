"""Use a store as one of several processes does: the checks run these functions in the processes with a store."""

from __future__ import annotations

import asyncio
import time
from threading import Event
from typing import TYPE_CHECKING, Any

from ...documents import DocumentChange, DocumentStore
from ...errors import DocumentConflict, SessionConflict
from ...events import SessionEvent
from ...shared_stores import ReceivingStore, SharedStore
from ...storage import Admission, DurableStore
from ...store_views import StoreViews
from .deliveries import event_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...shared_stores import Bounds
    from ...storage import Delivery

QUEUE = "queue"
PAUSE = 0.005
"""Seconds between two looks."""


async def write_events(store: DurableStore, project: str, name: str, each: int, writers: int = 4) -> list[str]:
    """Log events by several tasks at once, each `each` of them: every second task with commits. Return their ids."""
    tasks = (_commit_events if number % 2 else _emit_events for number in range(writers))
    written = await asyncio.gather(
        *(task(store, project, name, f"{name}-{number}", each) for number, task in enumerate(tasks))
    )
    return [event_id for ids in written for event_id in ids]


async def _emit_events(store: DurableStore, project: str, name: str, stem: str, each: int) -> list[str]:
    sent = [SessionEvent(name, {}, event_id=f"{stem}-{number}") for number in range(each)]
    for event in sent:
        await store.emit(event)
    return [event.event_id for event in sent]


async def _commit_events(store: DurableStore, project: str, name: str, stem: str, each: int) -> list[str]:
    sent = [SessionEvent(name, {}, event_id=f"{stem}-{number}") for number in range(each)]
    for start in range(0, each, 5):
        await store.enqueue(project, stem, "trigger", event_of())
        claimed = await store.claim(project, stem, owner="w@host", lease=3600, session_id=stem)
        assert claimed is not None, "a delivery that was just enqueued is due"
        await store.commit(claimed, emits=sent[start : start + 5])
    return [event.event_id for event in sent]


async def follow_log(store: DurableStore, since: int, last: str, limit: int = 100) -> list[tuple[int, str]]:
    """Read the log from a cursor on, as its readers do, up to the event with the id `last`; return what was seen."""
    seen: list[tuple[int, str]] = []
    while not seen or seen[-1][1] != last:
        found = await store.events(since=since, limit=limit)
        seen += [(event.sequence or 0, event.event_id) for event in found]
        since = seen[-1][0] if found else since
        await asyncio.sleep(0 if found else PAUSE)
    return seen


async def enqueue_many(
    store: DurableStore, project: str, sources: Sequence[str], keys: int = 0, dedupe: bool = False
) -> list[str]:
    """Enqueue an event for each source, by its key in turn; return the sources that were new."""
    new = []
    for number, source in enumerate(sources):
        event = event_of(source, dedupe_key=source if dedupe else None)
        admission = Admission(key=f"k{number % keys}") if keys else None
        if await store.enqueue(project, QUEUE, "trigger", event, admission=admission) is not None:
            new.append(source)
    return new


async def claim_all(
    store: Any, project: str, owner: str, workers: int = 4, bounds: Bounds | None = None
) -> list[Delivery]:
    """Claim by several tasks at once until nothing is due; return the deliveries."""
    more = {} if bounds is None else {"bounds": bounds}

    async def claim() -> list[Delivery]:
        claimed: list[Delivery] = []
        while True:
            each = await store.claim(project, QUEUE, owner=owner, lease=3600, session_id="session", **more)
            if each is None:
                return claimed
            claimed.append(each)

    return [each for claimed in await asyncio.gather(*(claim() for _ in range(workers))) for each in claimed]


async def work(
    store: DurableStore, project: str, owner: str, sources: Sequence[str], total: int, patience: float, workers: int = 4
) -> int:
    """Enqueue sources with four keys, and handle deliveries meanwhile, until `total` are done by all processes.

    Return how many are not done after `patience` seconds.

    The log tells when each began and ended: events `begin` and `end` with its key and source.
    """
    end = time.monotonic() + patience

    async def left() -> int:
        counts = await store.delivery_counts(project=project)
        return total - sum(each.counts.get("done", 0) for each in counts)

    async def handle() -> None:
        while time.monotonic() < end:
            claimed = await store.claim(project, QUEUE, owner=owner, lease=3600, session_id="session")
            if claimed is not None:
                await store.emit(_step("begin", project, claimed))
                await store.commit(claimed, emits=[_step("end", project, claimed)])
            elif await left() == 0:
                return
            else:
                await asyncio.sleep(PAUSE)

    await asyncio.gather(enqueue_many(store, project, sources, keys=4), *(handle() for _ in range(workers)))
    return await left()


def _step(name: str, project: str, delivery: Delivery) -> SessionEvent:
    return SessionEvent(name, {"key": delivery.key, "source": delivery.event.source}, project=project)


async def append_turns(store: DurableStore, session_id: str, name: str, turns: int) -> int:
    """Append turns of three messages, each after what is there by then; return the number of conflicts."""
    conflicts = 0
    for turn in range(turns):
        messages = [{"role": "user", "content": f"{name} {turn} {part}"} for part in range(3)]
        while True:
            at = (await store.get(session_id)).message_count
            try:
                await store.append(session_id, messages, at=at)
                break
            except SessionConflict:
                conflicts += 1
    return conflicts


async def count_up(store: Any, project: str, times: int) -> None:
    """Add one to a document, `times` times, each to the version that is there by then."""
    for _ in range(times):
        while True:
            before = await store.document(project, "counters", "one")
            count, version = (before.data["count"], before.version) if before else (0, 0)
            try:
                await store.write_documents([DocumentChange(project, "counters", "one", {"count": count + 1}, version)])
                break
            except DocumentConflict:
                continue


async def lead_all(store: Any, names: Sequence[str], owner: str) -> list[str]:
    """Take every free name; return those that were taken."""
    return [name for name in names if await store.lead(name, owner=owner, lease=3600) is not None]


async def reserve_places(store: Any, project: str, count: int, limit: int, period: float) -> list[float]:
    """Take places of a rate at once; return the seconds until each."""
    return list(await asyncio.gather(*(store.reserve(project, "rate", limit, period) for _ in range(count))))


async def hear_news(store: SharedStore, patience: float) -> bool:
    """Return whether the store told of news within `patience` seconds."""
    news = Event()
    end = store.listen(news.set)
    heard = await asyncio.to_thread(news.wait, patience)
    end()
    end()
    return heard


async def hear_commit(store: StoreViews, patience: float) -> bool:
    """Return whether the store told of a commit within `patience` seconds."""
    news = Event()
    end = store.watch_commits(news.set)
    heard = await asyncio.to_thread(news.wait, patience)
    end()
    end()
    return heard


async def append_until_refused(store: Any, session_id: str) -> str:
    """Append one message after the other; return the name of the error that ends this."""
    at = (await store.get(session_id)).message_count
    while True:
        try:
            at = await store.append(session_id, [{"role": "user", "content": f"zombie {at}"}], at=at)
        except Exception as error:
            return type(error).__name__


async def kinds(store: object) -> list[str]:
    """Return the contracts that the store implements."""
    return [
        each.__name__
        for each in (DurableStore, DocumentStore, SharedStore, ReceivingStore, StoreViews)
        if isinstance(store, each)
    ]
