"""Write a session's messages to a store while it runs, with any orchestrator and any context.

The recorder alone appends to its session. It appends at its own position, so a second writer gets a
`SessionConflict` and the history is never mixed. A write that has begun is carried out, also when its task is
cancelled: the recorder's position and the store agree at every await.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core import events
from amplifier_core.cancellation import run_guarded
from amplifier_core.errors import SessionConflict

from .call_times import CallTimes
from .held import CAPABILITY as HELD_CALLS
from .held import HeldCalls
from .history import turn_starts
from .once import OnceGuard, hand_over_decisions
from .records import RunningMetadata
from .untrusted import UNTRUSTED, taint_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore
    from amplifier_core.transcript import Message

    from .given_messages import GivenMessages

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE = 3.0
"""Seconds that a cancelled turn waits for a write of its record that has begun."""

_late_writes: set[asyncio.Task[Any]] = set()
"""An event loop keeps no reference to its tasks: these would be lost on their way."""
_BEFORE_ALL = -1_000_000
_OUR_METADATA = {"timestamp", "finish_reason"}
_CHECKPOINTS = {
    "message": (events.PROVIDER_REQUEST, events.TOOL_PRE, events.ORCHESTRATOR_COMPLETE, events.EXECUTION_END),
    "turn": (events.ORCHESTRATOR_COMPLETE, events.EXECUTION_END),
    "end": (),
}


class SessionRecorder:
    """Keeps the stored history level with the live one, as `session.persistence` in the plan says.

    `message` (default): the messages so far are durable before each request to the model and before each tool call.
    `turn`: a turn is durable when it has ended. `end`: the messages are durable after `flush`; a crash before loses
    them. When the store fails, the session is cancelled and `failure` holds the error: nothing goes on unrecorded.
    """

    def __init__(
        self, session: AmplifierSession, store: SessionStore, recorded: int, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._session = session
        self._store = store
        self._recorded = recorded
        self._given: GivenMessages | None = None
        """What a context with messages of its own was given."""
        self._turns = 0
        self._events = _CHECKPOINTS[session.config["session"].get("persistence") or "message"]
        self._is_prompt = self._events is _CHECKPOINTS["message"]
        self._lock = asyncio.Lock()
        self.failure: Exception | None = None
        self.metadata = RunningMetadata(session.session_id, store, metadata or {}, recorded)
        self.once = OnceGuard(session, self.metadata)
        self._times = CallTimes(session)
        self.held = HeldCalls(self)

    @property
    def turns(self) -> int:
        """The turns that began since the first message here."""
        added = self._session.transcript.since(self._recorded) if self._given is None else self._given.waiting
        return self._turns + len(turn_starts(added))

    @property
    def stored(self) -> int | None:
        """The number of stored messages; None if they are stored at the end alone."""
        return self._recorded if self._events else None

    def attach(self) -> None:
        """Begin to record at every checkpoint."""
        for event in self._events:
            self._session.coordinator.hooks.register(event, self._checkpoint, _BEFORE_ALL, "session-recorder")
        self.once.attach()
        self._times.attach()
        self._session.coordinator.register_capability(HELD_CALLS, self.held)

    async def _checkpoint(self, event: str, data: dict[str, Any]) -> Any:
        try:
            await self.flush()
        except Exception as error:
            self.fail(error)
            from amplifier_core.models import HookResult

            return HookResult(action="deny", reason=f"the session cannot be stored: {error}")
        return None

    def fail(self, error: Exception) -> None:
        """Stop the session: it cannot be stored."""
        self.failure = error
        self._session.coordinator.cancellation.request_immediate()

    async def flush(self) -> int:
        """Store the new messages; return the number of stored ones. Raises the errors of the store."""
        async with self._lock:
            history: Sequence[Message] = []
            if self._given is None:
                fresh = (await self._session.history()).since(self._recorded)
            else:
                fresh, history = await self._given.read()
            if fresh:
                await self._keep_taint()
                await shield_to_completion(self._append(fresh, history))
        return self._recorded

    async def listen(self) -> None:
        """Note each message that a context with messages of its own is given from now on."""
        context = self._session.coordinator.get("context")
        if context is not None and getattr(context, "transcript", None) is not self._session.transcript:
            from .given_messages import GivenMessages

            self._given = GivenMessages(self._session)
            await self._given.listen(context, self._recorded)

    async def _keep_taint(self) -> None:
        """Store that the session has read text of strangers, before the text itself."""
        tainted = taint_of(self._session)
        if tainted and UNTRUSTED not in self.metadata.values:
            await self.metadata.write(**tainted)

    async def _append(self, messages: list[Message], history: Sequence[Message]) -> None:
        known = [_stamp(each) if self._is_prompt else {} for each in messages]
        known = [{**stamp, **took} for stamp, took in zip(known, self._times.describe(messages), strict=True)]
        safe = [_with_metadata(_without_secrets(each), about) for each, about in zip(messages, known, strict=True)]
        try:
            count = await self._store.append(self._session.session_id, safe, at=self._recorded)
        except SessionConflict:
            self.metadata.is_lost = True
            raise
        self._recorded = self.metadata.count = count
        self._turns += len(turn_starts(messages))
        if self._given is not None:
            self._given.forget(history)


def _without_secrets(message: Message) -> Message:
    """Return a message for the store: a provider may have put anything into its metadata."""
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or metadata.keys() <= _OUR_METADATA:
        return message
    from amplifier_core.utils.secrets import redact_all

    return {**message, "metadata": redact_all(metadata)}


def _stamp(message: Message) -> dict[str, Any]:
    """Return the time for a message without one; at a checkpoint, its last moment is a moment ago."""
    metadata = message.get("metadata")
    has_time = isinstance(metadata, dict) and "timestamp" in metadata
    return {} if has_time else {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds")}


def _with_metadata(message: Message, about: Mapping[str, Any]) -> Message:
    metadata = message.get("metadata")
    if not about or not isinstance(metadata, dict | None):
        return message
    return {**message, "metadata": {**about, **(metadata or {})}}


@asynccontextmanager
async def record_session(
    session: AmplifierSession, store: SessionStore | None, stored: int, metadata: Mapping[str, Any]
) -> AsyncIterator[SessionRecorder | None]:
    """Record `session` while the block runs, from message `stored` on; without a store, do nothing.

    `metadata` is that of its record. Decisions in it about interrupted calls (`sessions.once`) and its held calls are
    handed over first. Afterwards the last messages are stored and the session ends, in any case. Raises the failure of
    the store, unless the block itself raises.
    """
    recorder = SessionRecorder(session, store, stored, metadata) if store is not None else None
    has_begun = False
    try:
        if recorder is not None:
            recorder.attach()
            await recorder.listen()
            await hand_over_decisions(session, metadata)
        has_begun = True
        yield recorder
    finally:
        try:
            if recorder is not None and has_begun:
                await recorder.flush()
        finally:
            await session.cleanup()
    if recorder is not None and recorder.failure is not None:
        raise recorder.failure


def begin_write(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> asyncio.Task[T]:
    """Begin `work`, which goes on when nobody waits for it any longer, and return its task; return a task as it is."""
    if isinstance(work, asyncio.Task):
        return work
    task = asyncio.ensure_future(run_guarded(work))
    _late_writes.add(task)
    task.add_done_callback(_forget)
    return task


async def shield_to_completion(work: Coroutine[Any, Any, T] | asyncio.Task[T], grace: float | None = None) -> T:
    """Return the result of `work`, awaited to its end also when cancelled meanwhile: then raise the cancellation.

    A cancelled caller waits for `grace` seconds at most (None: without a bound), as `finish_within` does.
    """
    task = begin_write(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await finish_within(task, grace)  # a second cancellation ends the wait and not the write
        raise


async def finish_within(work: Coroutine[Any, Any, Any] | asyncio.Task[Any], seconds: float | None) -> None:
    """Wait for the end of `work`, for so many seconds at most (None: without a bound), and raise its error.

    Work that takes longer goes on alone, and its error is lost.
    """
    task = begin_write(work)
    await asyncio.wait({task}, timeout=seconds)
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        raise error from None


def _forget(task: asyncio.Task[Any]) -> None:
    _late_writes.discard(task)
    if not task.cancelled():
        task.exception()  # the event loop would report it as never read
