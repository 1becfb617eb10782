"""Hold a conversation in an event loop of its own, in a thread of its own.

A tool that blocks holds up its session, and neither the program around it nor the other sessions.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.errors import AmplifierError

from .own_loops import SessionLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from .conversation import Conversation, Turn

T = TypeVar("T")
logger = logging.getLogger(__name__)

GRACE, PATIENCE = 2.0, 3.0
"""Seconds for a stopped turn to end by itself, and then, cancelled, until it is no longer waited for."""
ENDING = 10.0
"""Seconds for a session to end its modules."""


class Host:
    """One open conversation. Its methods are called in one loop, that of the program around it."""

    def __init__(self) -> None:
        self._own = SessionLoop()
        self._opened: Future[Conversation] = Future()
        self._life: Future[None] | None = None
        self._begun: set[Future[Any]] = set()
        """What has not ended."""
        self._closing: asyncio.Event | None = None
        self._living: asyncio.Task[Any] | None = None
        """What holds the conversation open, in the own loop."""

    async def start(self, opening: Callable[[], AbstractAsyncContextManager[Conversation]]) -> Conversation:
        """Open a conversation, and return it; what `opening` does happens in the own loop. Raises its errors.

        A cancelled opening gives back what it holds, such as the lock of the session: that is waited for, for a while.
        """
        self._life = life = self.begin(self._live(opening))
        try:
            return await asyncio.wrap_future(self._opened)
        except BaseException:
            life.add_done_callback(lambda _: self._own.end())
            self._own.call(self._cancel_life)
            await asyncio.wait({asyncio.wrap_future(life)}, timeout=PATIENCE)
            raise

    def _cancel_life(self) -> None:
        if self._living is not None:
            self._living.cancel()

    async def _live(self, opening: Callable[[], AbstractAsyncContextManager[Conversation]]) -> None:
        self._closing, self._living = asyncio.Event(), asyncio.current_task()
        try:
            async with opening() as conversation:
                self._opened.set_result(conversation)
                await self._closing.wait()
        except BaseException as error:
            if self._opened.done():
                logger.warning("a session did not end well: %s: %s", type(error).__name__, error)
            else:
                self._opened.set_exception(_contain(error))

    async def end(self) -> None:
        """End the conversation, its loop, and what waits for it; one that does not end is left to its thread."""
        if self._closing is not None and self._life is not None:
            self._own.call(self._closing.set)
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._life)), ENDING)
        for future in [*self._begun]:  # no loop would answer for it
            future.cancel()
        self._own.end()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something of the session in its own loop."""
        future = asyncio.run_coroutine_threadsafe(_run(work), self._own.loop)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something of the session in its own loop."""
        return await asyncio.wrap_future(self.begin(work))

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of the own loop."""
        self._own.call(task.cancel)


class RunningTurn:
    """One turn of a conversation, from its beginning until nothing of it runs."""

    def __init__(
        self, host: Host, conversation: Conversation, text: str, attached: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`attached` are content blocks beside the text."""
        self._host = host
        self._conversation = conversation
        self._task: asyncio.Task[Any] | None = None
        self._given_up = asyncio.Event()
        self._future = host.begin(self._say(text, attached))

    @property
    def is_done(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._future.done()

    async def _say(self, text: str, attached: Sequence[Mapping[str, Any]]) -> Turn:
        self._task = asyncio.current_task()
        return await self._conversation.say(text, attached)

    async def wait(self) -> Turn | None:
        """Return the turn; None: it was cancelled, and may hang."""
        ended, given_up = asyncio.create_task(_await(self._future)), asyncio.create_task(self._given_up.wait())
        try:
            await asyncio.wait([ended, given_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            given_up.cancel()
        return ended.result() if ended.done() and not ended.cancelled() else None

    async def stop(self) -> None:
        """Ask the turn to end, then cancel it, then have nobody wait for it any longer."""
        self._host.begin(self._conversation.session.coordinator.request_cancel(immediate=True))
        if not await self._has_ended(GRACE) and self._task is not None:
            self._host.cancel(self._task)
            await self._has_ended(PATIENCE)
        self._given_up.set()

    async def _has_ended(self, seconds: float) -> bool:
        with suppress(Exception, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._future)), seconds)
        return self._future.done()


async def _await(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


async def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise _contain(error) from None


def _contain(error: BaseException) -> BaseException:
    """Return an error in place of one that would end the whole process: a module of one session has raised it."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return AmplifierError(f"a module of the session wants to end the program: {error!r}")
    return error
