"""Carry out the calls of other agents: turns of sessions, and events for background sessions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, InvalidSessionId, SessionNotFound
from amplifier_core.ids import validate_session_id
from amplifier_foundation.background.firing import fire_by_hand
from amplifier_foundation.background.keys import queue_key
from amplifier_foundation.background.tasks import run_beside
from amplifier_foundation.cli.running.approving import Approvals
from amplifier_foundation.operations.history import read_messages
from amplifier_foundation.operations.running import status_elsewhere, wake
from amplifier_foundation.paths import project_of
from amplifier_foundation.security import read_policy
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.sessions.history import final_answer
from amplifier_foundation.sessions.storages import require_inbox
from amplifier_foundation.spawning.conversation import open_conversation
from amplifier_foundation.spawning.own_loops import Fence, SessionLoops

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord, SessionStore
    from amplifier_foundation.bundle.background_config import BackgroundSessionConfig
    from amplifier_foundation.bundle.model import Bundle

    from .offers import Offer

    Report = Callable[[str], Awaitable[None]]
    """Tells the caller of progress."""

AT_ONCE = 8
"""Turns at the same time; further calls wait."""
LOOK = 0.2
"""Seconds between two looks at a delivery that is waited for."""
UNFINISHED = ("pending", "claimed")


class Refused(AmplifierError, ValueError):
    """A call cannot be carried out; the text is for the calling agent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returns: `text` for the caller's model, `facts` for its program."""

    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


class Calls:
    """Carries out calls in one folder. A context manager: the turns that run at its end are cancelled before it."""

    def __init__(
        self,
        offers: Mapping[str, Offer],
        store: SessionStore,
        plugins: Plugins,
        folder: Path,
        report: Callable[[str], None],
    ) -> None:
        """`report` is called with what goes wrong beside a call: a session that hangs."""
        self._offers = offers
        self._store = store
        self._plugins = plugins
        self._folder = folder
        self._project = project_of(folder)
        self._report = report
        self._loops = SessionLoops()
        self._places = asyncio.Semaphore(AT_ONCE)

    def __enter__(self) -> Calls:
        self._loops.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loops.__exit__(*exc)

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Report) -> Answer:
        """Carry out one call with checked arguments. Raises `Refused`, and the errors of the session and the store."""
        offer = self._offers[name]
        wait = float(arguments.get("wait") or 0)
        if offer.bundle is None:
            return await self._look_at(arguments["delivery_id"], wait)
        if offer.background_session is not None:
            return await self._wake(offer.bundle, offer.background_session, arguments.get("data") or {}, wait)
        return await self._ask(offer.bundle, arguments, progress)

    async def _ask(self, bundle: Bundle, arguments: Mapping[str, Any], progress: Report) -> Answer:
        record = None
        if arguments.get("session"):
            record = await self._find_session(bundle, arguments["session"])
            if arguments.get("fork"):
                record = await fork_stored(self._store, record, plugins=self._plugins)
        elif arguments.get("fork"):
            raise Refused("fork: name the session to fork")
        steps = _Steps()
        async with self._places, run_beside(steps.tell(progress), "mcp-progress"):
            fence = Fence(record.session_id if record is not None else bundle.name, self._report)
            return await self._loops.run(self._take_turn(bundle, record, arguments["prompt"], steps), fence)

    async def _take_turn(self, bundle: Bundle, record: SessionRecord | None, prompt: str, steps: _Steps) -> Answer:
        """Take a turn in the loop of the session."""
        approvals = Approvals(None, lambda: None)  # nobody answers: an agent must not answer for a person
        async with open_conversation(
            bundle,
            self._store,
            self._plugins,
            resume=record,
            working_dir=self._folder,
            approval_system=approvals,
            permissions=read_policy(self._folder),
            attach=steps.attach,
        ) as conversation:
            approvals.attach(conversation.session, conversation.record.name)
            turn = await conversation.say(prompt)
        facts = {"session_id": turn.session_id, "status": turn.status, "turn_count": turn.turn_count}
        if approvals.unanswered:
            facts["unanswered"] = list(approvals.unanswered)
        if turn.error is not None:
            return Answer(f"{turn.output}\n\nThe turn is incomplete: {turn.error}".strip(), facts, failed=True)
        return Answer(turn.output, facts)

    async def _find_session(self, bundle: Bundle, session_id: str) -> SessionRecord:
        """Return a session of the bundle in this folder: no other one is offered."""
        with suppress(InvalidSessionId, SessionNotFound):
            record = await self._store.get(validate_session_id(session_id))
            if record.project == self._project and record.bundle == bundle.name:
                return record
        raise Refused(f"there is no session {session_id[:80]!r} of bundle '{bundle.name}' here")

    async def _wake(
        self, bundle: Bundle, session: BackgroundSessionConfig, data: Mapping[str, Any], wait: float
    ) -> Answer:
        project = project_of(bundle.base_path)
        delivery = await fire_by_hand(self._inbox, self._plugins, project, bundle.name, session, data)
        if delivery is None:
            return Answer("An equal event waits already.", {"state": "duplicate"})
        runs = await asyncio.to_thread(wake, project, session.name)
        runs = runs or await status_elsewhere(self._inbox, project, delivery.queue) != ""
        if not runs and delivery.state == "pending" and not wait:
            remedy = "No process handles it now; it waits for: amplifier up"
            return Answer(f"Accepted as delivery {delivery.delivery_id}. {remedy}", _facts_of(delivery))
        return await self._wait_for(delivery, wait)

    async def _look_at(self, delivery_id: str, wait: float) -> Answer:
        found = await self._inbox.find_deliveries(delivery_id) if delivery_id else []
        for delivery in found:
            if delivery.delivery_id == delivery_id and (delivery.project, delivery.queue) in self._queues():
                return await self._wait_for(delivery, wait)
        raise Refused(f"there is no delivery {delivery_id[:80]!r} of the background sessions offered here")

    def _queues(self) -> set[tuple[str, str]]:
        return {
            (project_of(offer.bundle.base_path), queue_key(offer.bundle.name, offer.background_session.name))
            for offer in self._offers.values()
            if offer.bundle is not None and offer.background_session is not None
        }

    async def _wait_for(self, delivery: Delivery, seconds: float) -> Answer:
        """Return the state of a delivery: its end, if it comes in time."""
        until = monotonic() + seconds
        while delivery.state in UNFINISHED and monotonic() < until:
            await asyncio.sleep(min(LOOK, max(0.0, until - monotonic())))
            [delivery] = [
                each
                for each in await self._inbox.find_deliveries(delivery.delivery_id)
                if each.delivery_id == delivery.delivery_id
            ]
        facts = _facts_of(delivery)
        if delivery.state != "done":
            why = f": {delivery.reason}" if delivery.reason else ""
            failed = delivery.state not in UNFINISHED
            return Answer(f"Delivery {delivery.delivery_id} is {delivery.state}{why}", facts, failed=failed)
        answer = None
        if delivery.session_id is not None:
            with suppress(SessionNotFound):  # deleted meanwhile
                record = await self._store.get(delivery.session_id)
                answer = final_answer(await read_messages(self._store, delivery, record, last=True))
        return Answer(answer or "Done.", facts)

    @property
    def _inbox(self) -> DurableStore:
        return require_inbox(self._store, "this store")


class _Steps:
    """The tool calls of a session and of those below it, on their way from its loop to the caller."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Queue[str] = asyncio.Queue()

    def attach(self, session: AmplifierSession) -> None:
        """Hear of the calls of a session; its own loop calls this."""
        session.coordinator.hooks.observe({"tool:pre": self._hear}, priority=1_000, name="mcp-progress")

    async def tell(self, report: Report) -> None:
        """Report calls until this is cancelled."""
        while True:
            await report(await self._begun.get())

    def _hear(self, event: str, data: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed
            self._loop.call_soon_threadsafe(self._begun.put_nowait, str(data.get("tool_name")))


def _facts_of(delivery: Delivery) -> dict[str, Any]:
    facts = {"delivery_id": delivery.delivery_id, "state": delivery.state, "session_id": delivery.session_id}
    return {**facts, "reason": delivery.reason} if delivery.reason else facts
