"""Why something happened: the chain from the first event down to an event or a session, and what came of that."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, SessionConflict, SessionNotFound
from amplifier_core.events import SessionEvent
from amplifier_core.ids import validate_session_id
from amplifier_core.triggers import TriggerType

from .lineage import above_id
from .presence import as_it_is

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.storage import Delivery, DurableStore, SessionRecord
    from amplifier_core.triggers import TriggerEvent

LONGEST = 200
"""Links of a chain that are followed upwards."""
MOST = 1_000
"""Links of which is looked at what they caused."""
ALL = 1_000_000
PAGE = 1_000
"""Events that are read at once."""
RECENT = 100
"""Deliveries of a background session that are looked at for the events that woke it."""
SHORTEST = 4
"""Characters of an id that name it."""


class NothingStored(AmplifierError, LookupError):
    """No session, event or delivery that is stored has such an id."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"nothing stored has an id that begins with '{text}' ({SHORTEST} characters or more). See: "
            "amplifier session list --all, or amplifier trigger dead --all; what was over long ago may be trimmed"
        )


@dataclass(slots=True, eq=False)
class Link:
    """One step: an event, or what a background session made of one (`delivery`), or a session.

    A delivery has the session that it woke beside it. A session whose `record` is None is stored no more, or not yet.
    """

    event: SessionEvent | TriggerEvent | None = None
    delivery: Delivery | None = None
    session_id: str | None = None
    record: SessionRecord | None = None
    caused: list[Link] = field(default_factory=list)
    asked: bool = False
    """Whether it is what was asked for."""
    open: bool = False
    """Whether it was not looked at what it caused: there is too much."""

    @property
    def key(self) -> str:
        """The id of what it is about."""
        if self.event is not None:
            return self.event.event_id
        return self.session_id or (self.delivery.delivery_id if self.delivery else "")

    @property
    def moment(self) -> datetime | None:
        """When it began; None where that is not known."""
        if self.event is not None:
            return self.event.timestamp
        if self.delivery is not None:
            return self.delivery.created
        return self.record.created if self.record else None


async def explain(store: DurableStore, text: str) -> Link:
    """Return the first link of the chain that leads to what `text` names, with what the `asked` one caused below it.

    `text` is the id of a session, an event or a delivery, or a beginning of four characters or more. An event of the
    log and those that triggers have made of it are one link. Raises `NothingStored`, `SessionConflict` when several
    ids begin so, `InvalidSessionId`.
    """
    validate_session_id(text)
    causes = _Causes(store)
    first = asked = await causes.named(text)
    asked.asked = True
    passed = {asked.key}
    while (above := await causes.above(first)) is not None and above.key not in passed and len(passed) < LONGEST:
        above.caused = [first]
        passed.add(above.key)
        first = above
    await causes.grow(asked, passed)
    return first


def walk(first: Link) -> Iterator[tuple[Link | None, Link]]:
    """Yield every link, each after the one above it, which comes with it."""
    waiting: list[tuple[Link | None, Link]] = [(None, first)]
    while waiting:
        above, link = waiting.pop()
        yield above, link
        waiting.extend((link, below) for below in reversed(link.caused))


async def listeners(store: DurableStore, project: str | None) -> dict[str, list[str]]:
    """Return the lanes that events of sessions have woken before, and the names of the last of those events."""
    found: dict[str, list[str]] = {}
    for where, lane in sorted({(tally.project, tally.lane) for tally in await store.tallies(project=project)}):
        last = await store.deliveries(project=where, lane=lane, limit=RECENT)
        events = [each.event for each in last if each.event.type is TriggerType.SESSION_EVENT]
        if events:
            found[lane] = sorted({event.event_name or "" for event in events})
    return found


class _Causes:
    """What is stored, asked for what led to what."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store

    async def named(self, text: str) -> Link:
        """Return the one link that an id, or its beginning, names."""
        for record in await self._store.find(text):
            if record.session_id == text:
                return await self._session(text)
        found = {link.key: link for link in await self._candidates(text)} if len(text) >= SHORTEST else {}
        if len(found) > 1:
            ids = ", ".join(sorted(found)[:5])
            raise SessionConflict(text, f"'{text}' begins several ids: {ids}. Give more of the id")
        if not found:
            raise NothingStored(text)
        return next(iter(found.values()))

    async def _candidates(self, text: str) -> list[Link]:
        exact = await self._store.deliveries(event_id=text)
        if exact:
            return [await self._of(exact[0].event)]
        if (logged := await self._logged(text)) is not None:
            return [Link(event=logged)]
        links = [await self._session(record.session_id) for record in await self._store.find(text)]
        links += [Link(event=event) for event in await self._store.find_events(text)]
        for each in await self._store.find_deliveries(text):
            if each.event.event_id.startswith(text) or each.delivery_id.startswith(text):
                links.append(await self._of(each.event))
            elif each.session_id is not None:
                links.append(await self._session(each.session_id))
        return links

    async def _of(self, event: TriggerEvent) -> Link:
        """Return the link of an event that a trigger yielded: of the log's event that it passed on, if it did."""
        return Link(event=await self._logged(event.cause) or event)

    async def _logged(self, event_id: str | None) -> SessionEvent | None:
        """Return the event of the log that has this id."""
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
        except SessionNotFound:
            return None

    async def above(self, link: Link) -> Link | None:
        """Return what led to a link, None for the first."""
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
        if (logged := await self._logged(event.cause)) is not None:
            return Link(event=logged)
        caused_by = await self._store.deliveries(event_id=event.cause, limit=1) if event.cause else []
        return await self._of(caused_by[0].event) if caused_by else None

    async def grow(self, root: Link, passed: set[str]) -> None:
        """Put below a link what it caused, and so on; nothing that was `passed`, and nothing twice."""
        waiting, count = deque([root]), 0
        while waiting:
            link, count = waiting.popleft(), count + 1
            if count > MOST:
                link.open = True
                continue
            link.caused = [each for each in await self._caused(link) if each.key not in passed]
            passed |= {each.key for each in link.caused}
            waiting.extend(link.caused)

    async def _caused(self, link: Link) -> list[Link]:
        if link.event is not None:
            return [
                Link(delivery=each, session_id=each.session_id, record=await self._record(each.session_id))
                for each in reversed(await self._taken(link.event))
            ]
        if link.session_id is None:
            return []
        emitted = [Link(event=event) for event in await self._emitted(link.session_id)]
        made = [Link(session_id=each.session_id, record=as_it_is(each)) for each in await self._children(link)]
        return sorted(emitted + made, key=lambda each: each.moment.timestamp() if each.moment else 0.0)

    async def _taken(self, event: SessionEvent | TriggerEvent) -> list[Delivery]:
        """Return what every background session that an event came to made of it, newest first."""
        cause = event.event_id if isinstance(event, SessionEvent) else event.cause
        if cause is not None:
            return await self._store.deliveries(cause=cause, limit=ALL)
        return await self._store.deliveries(event_id=event.event_id, limit=ALL)

    async def _emitted(self, session_id: str) -> list[SessionEvent]:
        """Return the events that a session emitted, without their data."""
        events: list[SessionEvent] = []
        since = 0
        while True:
            page = await self._store.events(since=since, limit=PAGE, source_session_id=session_id)
            events += (replace(each, data={}) for each in page)
            if len(page) < PAGE:
                return events
            since = page[-1].sequence or since

    async def _children(self, link: Link) -> list[SessionRecord]:
        """Return the sessions that a session made, and its forks; those that an event woke are what that caused."""
        if link.record is None or link.session_id is None:
            return []
        made = await self._store.sessions(parent_id=link.session_id)
        return [each for each in made if each.event_id is None]
