"""Find the causes and effects of an event or a session: the chain from the first event down, and all below it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, InvalidSessionId, SessionConflict, SessionNotFound
from amplifier_core.events import SessionEvent
from amplifier_core.ids import validate_session_id
from amplifier_core.triggers import TriggerType

from ..sessions.lineage import above_id
from ..sessions.presence import as_it_is
from ..sessions.store_views import views_of
from .keys import TAG, tag_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from amplifier_core.storage import Delivery, DurableStore, SessionRecord
    from amplifier_core.triggers import TriggerEvent

LONGEST = 200
"""Links followed upwards."""
MOST = 1_000
"""Links after which no more effects are looked up."""
BELOW = 100
"""Effects of one link, the last ones: a session may have any number of forks."""
PAGE = 1_000
"""Events read at once."""
RECENT = 100
"""Deliveries of a background session read for the names of its events."""
SHORTEST = 4
"""Characters of an id's shortest prefix."""


class NothingStored(AmplifierError, LookupError):
    """No stored session, event or delivery has such an id."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"nothing stored has an id that begins with '{text}' ({SHORTEST} characters or more). See: "
            "amplifier session list --all, or amplifier trigger dead --all; old events and sessions may be purged"
        )


@dataclass(slots=True, eq=False)
class Link:
    """One step of a chain: an event, or a delivery with its session, or a session.

    `record` is None for a session that is not stored: deleted, or not made yet.
    """

    event: SessionEvent | TriggerEvent | None = None
    delivery: Delivery | None = None
    session_id: str | None = None
    record: SessionRecord | None = None
    caused: list[Link] = field(default_factory=list)
    asked: bool = False
    """Whether `explain` was asked for it."""
    open: bool = False
    """Whether effects of it were left out: there are too many."""

    @property
    def key(self) -> str:
        """The id of its event, session or delivery."""
        if self.event is not None:
            return self.event.event_id
        return self.session_id or (self.delivery.delivery_id if self.delivery else "")

    @property
    def moment(self) -> datetime | None:
        """Its begin; None if unknown."""
        if self.event is not None:
            return self.event.timestamp
        if self.delivery is not None:
            return self.delivery.created
        return self.record.created if self.record else None


async def explain(store: DurableStore, text: str) -> Link:
    """Return the first link of the chain down to the item `text`, with the effects of that `asked` item below it.

    `text` is the id of a session, an event or a delivery, or a prefix of four characters or more, or the tag of a
    session as in the lines of `up`. An event of the log and the trigger events made from it are one link. Raises
    `NothingStored`, `SessionConflict` for a text of several, `InvalidSessionId`.
    """
    validate_session_id(text)
    causes = _Causes(store)
    first = asked = await causes.find_link(text)
    asked.asked = True
    passed = {asked.key}
    while (above := await causes.above(first)) is not None and above.key not in passed and len(passed) < LONGEST:
        above.caused = [first]
        passed.add(above.key)
        first = above
    await causes.grow(asked, passed)
    return first


def walk(first: Link) -> Iterator[tuple[Link | None, Link]]:
    """Yield (the link above, the link) for every link, top down."""
    waiting: list[tuple[Link | None, Link]] = [(None, first)]
    while waiting:
        above, link = waiting.pop()
        yield above, link
        waiting.extend((link, below) for below in reversed(link.caused))


async def listeners(store: DurableStore, project: str | None) -> dict[str, list[str]]:
    """Return the queues with deliveries of session events, and the names of the latest of these events."""
    found: dict[str, list[str]] = {}
    for where, queue in sorted(
        {(counted.project, counted.queue) for counted in await store.delivery_counts(project=project)}
    ):
        last = await store.deliveries(project=where, queue=queue, limit=RECENT)
        events = [each.event for each in last if each.event.type is TriggerType.SESSION_EVENT]
        if events:
            found[queue] = sorted({event.event_name or "" for event in events})
    return found


class _Causes:
    """Asks the store for causes and effects."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    async def find_link(self, text: str) -> Link:
        """Return the one link of an id or its prefix."""
        for record in await self._store.find(text):
            if record.session_id == text:
                return await self._session(text)
        candidates = await self._candidates(text) if len(text) >= SHORTEST else []
        if len(text) == TAG:
            candidates += await self._tagged(text)
        found = {link.key: link for _, link in candidates}
        if len(found) > 1:
            ids = ", ".join(sorted({key for key, _ in candidates})[:5])
            raise SessionConflict(text, f"'{text}' stands for several ids: {ids}. Give the whole id")
        if not found:
            raise NothingStored(text)
        return next(iter(found.values()))

    async def _candidates(self, text: str) -> list[tuple[str, Link]]:
        """Return what an id, or the ids that begin with a text, stand for, each with that id."""
        exact = await self._store.deliveries(event_id=text)
        if exact:
            return [(text, await self._of(exact[0].event))]
        if (logged := await self._logged_event(text)) is not None:
            return [(text, Link(event=logged))]
        found = [(each.session_id, await self._session(each.session_id)) for each in await self._store.find(text)]
        found += [(event.event_id, Link(event=event)) for event in await self._store.find_events(text)]
        for each in await self._store.find_deliveries(text):
            own = [key for key in (each.event.event_id, each.delivery_id) if key.startswith(text)]
            if own:
                found.append((own[0], await self._of(each.event)))
            elif each.session_id is not None:
                found.append((each.session_id, await self._session(each.session_id)))
        return found

    async def _tagged(self, tag: str) -> list[tuple[str, Link]]:
        """Return the sessions with a tag, also those of the newest deliveries that have none stored."""
        views = views_of(self._store)
        stored = await views.session_page(text=f"-{tag}", limit=PAGE)
        ids = {record.session_id for record in stored} | {
            delivery.session_id for delivery in await views.delivery_page(limit=PAGE) if delivery.session_id
        }
        return [(each, await self._session(each)) for each in sorted(ids) if tag_of(each) == tag]

    async def _of(self, event: TriggerEvent) -> Link:
        """Return the link of a trigger's event; a passed-on event of the log comes in its place."""
        return Link(event=await self._logged_event(event.cause) or event)

    async def _logged_event(self, event_id: str | None) -> SessionEvent | None:
        """Return the event of the log with this id."""
        found = await self._store.find_events(event_id) if event_id else []
        return next((event for event in found if event.event_id == event_id), None)

    async def _session(self, session_id: str) -> Link:
        woken_by = await self._store.deliveries(session_id=session_id, limit=1)
        return Link(
            delivery=woken_by[0] if woken_by else None, session_id=session_id, record=await self._record(session_id)
        )

    async def _record(self, session_id: str | None) -> SessionRecord | None:
        try:
            return as_it_is(await self._store.get(session_id)) if session_id else None
        except (SessionNotFound, InvalidSessionId):
            return None

    async def above(self, link: Link) -> Link | None:
        """Return the cause of a link, None for the first."""
        if link.event is not None:
            return await self._emitter(link.event)
        if link.delivery is not None:
            return await self._of(link.delivery.event)
        record = link.record
        above = above_id(record) if record and record.event_id is None else None  # else an event, kept no more, woke it
        return await self._session(above) if above else None

    async def _emitter(self, event: SessionEvent | TriggerEvent) -> Link | None:
        if event.source_session_id:
            return await self._session(event.source_session_id)
        if (logged := await self._logged_event(event.cause)) is not None:
            return Link(event=logged)
        caused_by = await self._store.deliveries(event_id=event.cause, limit=1) if event.cause else []
        return await self._of(caused_by[0].event) if caused_by else None

    async def grow(self, root: Link, passed: set[str]) -> None:
        """Put the effects of a link below it, and theirs below them; leave out `passed` keys and repetitions."""
        waiting = deque([root])
        while waiting:
            link = waiting.popleft()
            if len(passed) > MOST:
                link.open = True
                continue
            effects = await self._effects(link)
            link.open = len(effects) > BELOW
            link.caused = [each for each in effects[-BELOW:] if each.key not in passed]
            passed |= {each.key for each in link.caused}
            waiting.extend(link.caused)

    async def _effects(self, link: Link) -> list[Link]:
        """Return the effects of a link, the oldest first; of more than `BELOW`, the last ones, and more than that."""
        if link.event is not None:
            return [
                Link(delivery=each, session_id=each.session_id, record=await self._record(each.session_id))
                for each in reversed(await self._deliveries(link.event))
            ]
        if link.session_id is None:
            return []
        emitted = [Link(event=event) for event in await self._events_of(link.session_id)]
        made = [Link(session_id=each.session_id, record=as_it_is(each)) for each in await self._children(link)]
        return sorted(emitted + made, key=lambda each: each.moment.timestamp() if each.moment else 0.0)

    async def _deliveries(self, event: SessionEvent | TriggerEvent) -> list[Delivery]:
        """Return the last deliveries of an event to all background sessions, newest first."""
        cause = event.event_id if isinstance(event, SessionEvent) else event.cause
        if cause is not None:
            return await self._store.deliveries(cause=cause, limit=BELOW + 1)
        return await self._store.deliveries(event_id=event.event_id, limit=BELOW + 1)

    async def _events_of(self, session_id: str) -> Iterable[SessionEvent]:
        """Return the last events of a session, without their data."""
        events: deque[SessionEvent] = deque(maxlen=BELOW + 1)
        since = 0
        while True:
            page = await self._store.events(since=since, limit=PAGE, source_session_id=session_id)
            events.extend(replace(each, data={}) for each in page)
            if len(page) < PAGE:
                return events
            since = page[-1].sequence or since

    async def _children(self, link: Link) -> list[SessionRecord]:
        """Return the last sessions made by a session, and its forks; a session of an event belongs to the event."""
        if link.record is None or link.session_id is None:
            return []
        limit = BELOW + 1
        while True:
            read = await self._store.sessions(parent_id=link.session_id, limit=limit)
            made = [each for each in read if each.event_id is None]
            if len(made) > BELOW or len(read) < limit:
                return made[: BELOW + 1]
            limit *= 10
