"""Tell a person, as the setting `notify` says, when background sessions need one.

Each target gets at most one notification a minute: the first event is told at once, those of the next minute together.
A target that fails is a warning, and its events are lost; no background session waits for it. Nothing is kept: events
of an earlier process are not told.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import wait_for
from amplifier_core.frozen import slotted
from amplifier_core.utils.command_secrets import redact_commands
from amplifier_core.utils.secrets import redact_all

from .notify_targets import NotDelivered, make_target
from .tasks import keep_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.clock import Clock

    from .notify_targets import Target
    from .state import Activity

logger = logging.getLogger(__name__)

PAUSE = timedelta(seconds=60)
"""Between two notifications of one target, and until a degraded background session is told."""
MOST = 20
"""Events in one notification; `count` has the number of all."""
LAST_WORDS = 15.0
"""Seconds at the end for the notifications that wait."""

Fact = dict[str, Any]


@slotted
class Mailbox:
    """The events that wait for one target."""

    target: Target
    on: frozenset[str]
    clock: Clock
    _waiting: list[Fact] = field(default_factory=list)
    _count: int = 0
    _filled: asyncio.Event = field(default_factory=asyncio.Event)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def put(self, fact: Fact) -> None:
        """Note an event, if the target is to be told of such ones."""
        if fact["event"] in self.on:
            self._count += 1
            self._waiting = [*self._waiting, fact][:MOST]
            self._filled.set()

    async def run(self) -> None:
        """Send what waits, at most once a minute, until cancelled."""
        while True:
            await self._filled.wait()
            await self.send()
            await self.clock.sleep(PAUSE.total_seconds())

    async def send(self) -> None:
        """Send the waiting events, if any, after those on their way; a failure is logged."""
        async with self._sending:
            events, count = self._waiting, self._count
            self._waiting, self._count = [], 0
            self._filled.clear()
            if not events:
                return
            text = events[0]["text"] if count == 1 else f"{count} events: {events[0]['text']}; …"
            notification = {"schema": "amplifier/notification/1", "count": count, "text": text, "events": events}
            try:
                await self.target.deliver(notification)
            except NotDelivered as error:
                logger.warning("%s was not told of %d events: %s", self.target, count, error)
            except Exception:
                logger.exception("%s was not told", self.target)


class Notifications:
    """Turns activities of background sessions into notifications; `observe` is their observer."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], clock: Clock) -> None:
        self._clock = clock
        self._begun = clock.now()
        self._mailboxes = [Mailbox(make_target(each), frozenset(each["on"]), clock) for each in entries]
        self._asked: set[str] = set()
        self._working: set[str] = set()
        """Projects in which a session has begun."""
        self._budgets: dict[tuple[str, str], str] = {}
        self._degraded: dict[tuple[str, str], tuple[datetime, Fact]] = {}
        self._known: set[tuple[str, str]] = set()
        """Degraded background sessions that were told, until they work again."""
        self._changed = asyncio.Event()

    def observe(self, activity: Activity) -> None:
        """Note an activity, and tell it if a person is needed."""
        on_activity = getattr(self, f"_on_{activity.kind}", None)
        if self._mailboxes and on_activity is not None:
            on_activity(activity)

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell the targets while the block runs; at its end, events on their way and waiting ones are told, too."""
        if not self._mailboxes:
            yield
            return
        async with keep_beside(self._run, "notifications"):
            try:
                yield
            finally:
                try:
                    async with asyncio.timeout(LAST_WORDS):
                        await asyncio.gather(*(each.send() for each in self._mailboxes))
                except TimeoutError:
                    logger.warning("some notifications were not told: the program ends")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for mailbox in self._mailboxes:
                group.create_task(mailbox.run())
            group.create_task(self._watch_degraded())

    async def _watch_degraded(self) -> None:
        while True:
            self._changed.clear()
            if not self._degraded:
                await self._changed.wait()
                continue
            await wait_for(self._clock, self._changed, min(since for since, _ in self._degraded.values()) + PAUSE)
            for key, (since, fact) in list(self._degraded.items()):
                if self._clock.now() >= since + PAUSE:
                    del self._degraded[key]
                    self._known.add(key)
                    self._tell(fact)

    def _on_dead(self, activity: Activity) -> None:
        delivery, reason = activity.facts["delivery"], activity.facts["reason"]
        more = {"delivery_id": delivery.delivery_id, "session_id": delivery.session_id}
        self._tell(self._make("given_up", activity, f"{activity.name} gave up an event: {reason}", reason, **more))

    def _on_held(self, activity: Activity) -> None:
        """Tell of new questions; a delivery is held again when it is looked at, and after a restart."""
        questions = activity.facts["questions"]
        fresh = [each for each in questions if each.created >= self._begun and each.id not in self._asked]
        self._asked |= {each.id for each in fresh}
        for each in fresh:
            text = f"{activity.name} waits for approval of {each.tool}: amplifier approvals show {each.id}"
            self._tell(self._make("approval", activity, text, each.question, approval_id=each.id, tool=each.tool))

    def _on_session(self, activity: Activity) -> None:
        self._working.add(activity.project)

    def _on_budget_spent(self, activity: Activity) -> None:
        """Tell of a budget that was spent now: one that held the first event was spent before."""
        key, until = (activity.project, activity.queue), str(activity.facts["until"])
        if activity.project in self._working and self._budgets.get(key) != until:
            reason = activity.facts["reason"]
            self._tell(self._make("budget", activity, f"{activity.name} has spent a budget: {reason}", reason))
        self._budgets[key] = until

    def _on_state(self, activity: Activity) -> None:
        key, status, reason = (activity.project, activity.queue), activity.facts["status"], activity.facts["reason"]
        if status not in ("degraded", "failed"):
            self._degraded.pop(key, None)
            self._known.discard(key)
        elif key not in self._known:
            fact = self._make("degraded", activity, f"{activity.name} is {status}: {reason}", reason)
            since = self._degraded[key][0] if key in self._degraded else self._clock.now()
            self._degraded[key] = (since, fact)
        self._changed.set()

    def _make(self, event: str, activity: Activity, text: str, reason: str, **more: Any) -> Fact:
        place = {"background_session": activity.name, "queue": activity.queue, "project": activity.project}
        about = {"event": event, "at": self._clock.now().isoformat(), **place, "reason": reason, **more}
        fact: Fact = redact_all(about)
        return {**fact, "text": redact_commands(text)[:300]}

    def _tell(self, fact: Fact) -> None:
        for mailbox in self._mailboxes:
            mailbox.put(fact)
