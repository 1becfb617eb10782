"""Follow what other processes do: sessions that they run, and the questions of background sessions."""

from __future__ import annotations

import asyncio
import logging
import os
from itertools import count
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import AmplifierError, SessionConflict, SessionNotFound, StoreDamaged
from amplifier_core.storage import DurableStore

from .approving import ask
from .contents import make_text
from .replaying import replay
from .tool_calls import describe_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_foundation.background.approvals import Approval, Scope

    from .peer import Peer

logger = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at a session of another process."""
_LAST_LOOKS = 4
"""How many of them a prompt waits for what was said elsewhere."""
LOOK_FOR_QUESTIONS, SELDOM = 1.0, 10
"""Seconds between two looks for questions of background sessions, and how many looks make one where none runs."""


def is_elsewhere(record: SessionRecord) -> bool:
    """Return whether another process runs a session now, or has it open between two turns."""
    from amplifier_foundation.sessions.lock import holder_of
    from amplifier_foundation.sessions.presence import KEY, is_running, this_process

    runs = is_running(record) and record.metadata.get(KEY) not in (None, this_process())
    return runs or holder_of(record.session_id) not in (None, str(os.getpid()))


async def follow(
    store: SessionStore, record: SessionRecord, shown: int, tell: Callable[[dict[str, Any]], None]
) -> None:
    """Report the messages of a session after the first `shown`, until it is nowhere else, or damaged."""
    goes_on = True
    while goes_on:
        try:
            record = await store.get(record.session_id)
            if not (goes_on := is_elsewhere(record)):
                record = await store.get(record.session_id)  # with what was stored just before
            if record.message_count > shown:
                messages = await store.read(record.session_id, shown, record.message_count)
                for update in replay(messages, record.project, shown):
                    tell(update)
                shown = record.message_count
        except SessionNotFound:
            return
        except StoreDamaged as error:
            logger.warning("session '%s' is followed no longer: %s", record.session_id, error)
            return
        except BaseException as raised:  # the store may be locked for a moment, or its disk full
            logger.info("session '%s' cannot be followed for now: %s", record.session_id, own_failure(raised))
            goes_on = True
        if goes_on:
            await asyncio.sleep(LOOK)


async def finish(following: asyncio.Task[None], store: SessionStore, session_id: str) -> None:
    """Let a session that is nowhere else any more be followed to its end, for a moment; one that is, goes on."""
    for _ in range(_LAST_LOOKS):
        if following.done() or is_elsewhere(await store.get(session_id)):
            return
        await asyncio.wait({following}, timeout=LOOK)
    following.cancel()  # what is said here would be shown twice


class Questions:
    """Puts the questions of background sessions to the editor that is open on their project.

    `find_session` returns the session in which the editor is asked about a project; None: it has none there. A question
    in a session that is closed, as `is_open` says, is asked again in another one.
    """

    def __init__(
        self,
        peer: Peer,
        store: SessionStore,
        find_session: Callable[[str], str | None],
        is_open: Callable[[str], bool],
    ) -> None:
        self._peer = peer
        self._store = store
        self._find_session = find_session
        self._is_open = is_open
        self._asked: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The sessions and the tasks of questions, by the ids of approvals."""

    async def watch(self) -> None:
        """Ask what waits, until cancelled; what is answered elsewhere is withdrawn."""
        try:
            for look in count():
                await asyncio.sleep(LOOK_FOR_QUESTIONS)
                try:
                    await self._look(is_thorough=look % SELDOM == 0)
                except BaseException as raised:  # the store may be locked for a moment, or its disk full
                    logger.info("questions of background sessions: %s", own_failure(raised))
        finally:
            tasks = [task for _, task in self._asked.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, *, is_thorough: bool) -> None:
        from amplifier_foundation.background.approvals import read_all
        from amplifier_foundation.sessions.lock import running_owners

        store = self._store
        if isinstance(store, DurableStore) and (is_thorough or running_owners()):
            known = await read_all(store)
            self._compare({each.id: each for each in known if each.state == "pending"})

    def _compare(self, pending: dict[str, Approval]) -> None:
        for its_id, (session_id, task) in [*self._asked.items()]:
            if its_id not in pending or not self._is_open(session_id):
                task.cancel()
                del self._asked[its_id]
        for its_id, approval in pending.items():
            found = self._find_session(approval.project)
            if its_id not in self._asked and found is not None:
                self._asked[its_id] = found, asyncio.create_task(self._ask(approval, found))

    async def _ask(self, approval: Approval, session_id: str) -> None:
        from amplifier_core.permissions.gate import ALWAYS, ONCE
        from amplifier_foundation.operations.acting import person_here
        from amplifier_foundation.operations.approvals import answer_approval
        from amplifier_foundation.operations.running import wake

        name = approval.queue.rpartition("/")[2]
        told = describe_call(f"approval-{approval.id}", approval.tool, approval.arguments, approval.project)
        told["title"] = f"{name}: {told['title']}"
        text = f"The background session {name} asks: {approval.question}"
        told |= {"status": "pending", "content": [{"type": "content", "content": make_text(text)}]}
        answer = await ask(self._peer, session_id, told, approval.options)
        if answer is None or not isinstance(self._store, DurableStore):
            return
        state: Literal["approved", "denied"] = "approved" if answer.startswith("Allow") else "denied"
        scope: Scope = "once" if answer == ONCE else "always" if answer.startswith(ALWAYS) else "session"
        scope = scope if state == "approved" else "once"
        try:
            decided = await answer_approval(self._store, person_here("editor"), approval, state, scope)
        except SessionConflict as error:  # somebody else has answered
            logger.info("%s", error)
            return
        except AmplifierError as error:
            logger.warning("%s", error)
            return
        await asyncio.to_thread(wake, decided.project, name)
