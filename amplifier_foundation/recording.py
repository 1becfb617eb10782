"""Write a session's messages to a store while it runs, whatever its orchestrator and context are."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core import events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore
    from amplifier_core.transcript import Message

_BEFORE_ALL = -1_000_000
_CHECKPOINTS = {
    "message": (events.PROVIDER_REQUEST, events.TOOL_PRE, events.ORCHESTRATOR_COMPLETE, events.EXECUTION_END),
    "turn": (events.ORCHESTRATOR_COMPLETE, events.EXECUTION_END),
    "end": (),
}


class SessionRecorder:
    """Keeps the stored history level with the live one.

    How level, `session.persistence` in its plan says. `message` (default): before the model is asked and before a tool
    runs, what was said so far is durable. `turn`: a turn is, when it has ended. `end`: all is, when `flush` is called;
    a crash before loses it. When the store fails, the session is cancelled and `failure` says why: nothing goes on that
    could not be kept.
    """

    def __init__(self, session: AmplifierSession, store: SessionStore, recorded: int) -> None:
        self._session = session
        self._store = store
        self._recorded = recorded
        self._events = _CHECKPOINTS[session.config["session"].get("persistence") or "message"]
        self._lock = asyncio.Lock()
        self.failure: Exception | None = None

    def attach(self) -> None:
        """Begin to record at every checkpoint."""
        for event in self._events:
            self._session.coordinator.hooks.register(event, self._checkpoint, _BEFORE_ALL, "session-recorder")

    async def _checkpoint(self, event: str, data: dict[str, Any]) -> Any:
        try:
            await self.flush()
        except Exception as error:
            self.failure = error
            self._session.coordinator.cancellation.request_immediate()
            from amplifier_core.models import HookResult

            return HookResult(action="deny", reason=f"the session cannot be stored: {error}")
        return None

    async def flush(self) -> int:
        """Store what is new; return how many messages are stored. Raises what the store raises."""
        async with self._lock:
            fresh = await said_since(self._session, self._recorded)
            if fresh:
                await carried_out(self._append(fresh))
        return self._recorded

    async def _append(self, messages: list[Message]) -> None:
        self._recorded = await self._store.append(self._session.session_id, messages, at=self._recorded)


async def said_since(session: AmplifierSession, position: int) -> list[Message]:
    """Return the messages of a session from `position` on, wherever its context keeps them."""
    return (await session.history()).since(position)


@asynccontextmanager
async def recorded(
    session: AmplifierSession, store: SessionStore | None, stored: int
) -> AsyncIterator[SessionRecorder | None]:
    """Record `session`, of which `stored` messages are kept already, while the block runs; without a store, nothing.

    Then what is left is stored and the session ends, whatever happened. Raises why the store failed meanwhile, when the
    block itself did not raise.
    """
    recorder = SessionRecorder(session, store, stored) if store is not None else None
    try:
        if recorder is not None:
            recorder.attach()
        yield recorder
    finally:
        try:
            if recorder is not None:
                await recorder.flush()
        finally:
            await session.cleanup()
    if recorder is not None and recorder.failure is not None:
        raise recorder.failure


async def carried_out(work: Coroutine[Any, Any, Any]) -> None:
    """Await `work` also when cancelled meanwhile, then raise the cancellation: what was begun is carried out."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})  # which a second cancellation ends without reaching the write
        if not task.cancelled() and task.exception() is not None:
            raise task.exception() from None  # type: ignore[misc]  # it is not None
        raise
