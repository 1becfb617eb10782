"""Run turns of sessions in this process, as `amplifier run --resume` does; pages come and go meanwhile.

A turn holds its session from the opening of the conversation to its end: between two turns anybody may go on with it.
A tool call that asks is shown in the page, and is denied without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, Protocol

from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_core.frozen import slotted
from amplifier_foundation.sessions.presence import refuse_occupied
from amplifier_foundation.sessions.runs import refuse_run
from amplifier_foundation.spawning.hosting import Host, RunningTurn

from .written import Written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.bundle.model import PreparedBundle
    from amplifier_foundation.spawning.conversation import Conversation

    from .desk import Desk

logger = logging.getLogger(__name__)


@slotted
class Question:
    """A question of a session to the person; `answer` is the chosen option."""

    prompt: str
    options: list[str]
    answer: asyncio.Future[str]
    id: str = field(default_factory=lambda: token_hex(8))


class Work(Protocol):
    """What runs in this process for a session. Its methods are called in the loop of the server."""

    async def open(self) -> None:
        """Make everything ready; raise what refuses it."""
        ...

    async def work(self) -> None:
        """Run to the end; raise nothing."""
        ...

    async def end(self) -> None:
        """Have it end soon, and wait for that; the session can go on later."""
        ...


class Talk:
    """One turn of a session with a prompt; `accept` goes on with a changed bundle."""

    def __init__(self, desk: Desk, record: SessionRecord, text: str, *, accept: bool = False) -> None:
        self.written = Written()
        self.question: Question | None = None
        self._desk = desk
        self._record = record
        self._text = text
        self._accept = accept
        self._serving = asyncio.get_running_loop()
        self._host: Host | None = None
        self._conversation: Conversation | None = None
        self._turn: RunningTurn | None = None
        self._asking = asyncio.Lock()
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Load the bundle and open the conversation. Raises `NotTrusted`, `SessionConflict` and errors of bundles."""
        from amplifier_foundation.spawn import prepared_bundle
        from amplifier_foundation.spawning.opening import BundleOpener, refuse

        record = self._record
        refuse_run(record)
        refuse_occupied(record)
        bundle = await BundleOpener(self._desk.plugins).load(record.project, record, refuse)
        if record.bundle_digest and bundle.digest != record.bundle_digest and not self._accept:
            raise SessionConflict(
                record.session_id,
                f"the bundle {record.bundle} has changed since this session last ran. To go on with its present "
                f"version, tick: go on although the bundle has changed",
            )
        prepared = await prepared_bundle(bundle)
        self._host = Host()
        self._conversation = await self._host.start(lambda: self._open(prepared))
        try:
            self._text = await self._host.call(self._expand(self._conversation.session.coordinator))
        except BaseException:
            await self._host.end()
            raise

    def _open(self, prepared: PreparedBundle) -> AbstractAsyncContextManager[Conversation]:
        from amplifier_foundation.security import read_policy
        from amplifier_foundation.spawning.conversation import open_conversation

        return open_conversation(
            prepared,
            self._desk.store,
            self._desk.plugins.bound_to(self._serving),
            resume=self._record,
            approval_system=self,
            permissions=read_policy(self._record.project),
        )

    async def _expand(self, coordinator: ModuleCoordinator) -> str:
        """Return what a slash command of a module makes of the prompt, or the prompt itself.

        Raises `CommandFailed` and `CommandMissing`.
        """
        from amplifier_core.prompt_commands import collect_commands, expand_command

        if not self._text.startswith("/"):
            return self._text
        found = (await collect_commands(coordinator)).find(self._text)
        return self._text if found is None else await expand_command(*found)

    async def work(self) -> None:
        """Take the turn; its end is in the session's record."""
        from amplifier_foundation.spawning.turn_facts import FactReporter

        assert self._host is not None and self._conversation is not None  # it is open
        try:
            FactReporter(self._hear, waits=True).attach(self._conversation.session)
            self._turn = RunningTurn(self._host, self._conversation, self._text)
            await self._turn.wait()
        except Exception as error:
            logger.info("the turn of %s has failed: %s", self._record.session_id, error)
        finally:
            await self._host.end()
            self.written.take({"type": "end"})
            self._ended.set()

    def _hear(self, fact: dict[str, Any]) -> None:
        """Take a fact of the session's own loop."""
        self._serving.call_soon_threadsafe(self.written.take, fact)

    async def stop(self) -> None:
        """Ask the turn to end as cancelled, and withdraw its question; the session can go on later."""
        if self.question is not None:
            self.question.answer.cancel()
        if self._turn is not None:
            await self._turn.stop()

    async def end(self) -> None:
        """Stop the turn, and wait until its session is given back."""
        await self.stop()
        await self._ended.wait()

    # It is the approval system of the session, and of those below it.

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float | None,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the option that a person chooses in the page. Raises `ApprovalTimeoutError`."""
        asking = asyncio.run_coroutine_threadsafe(self._ask(prompt, options, timeout), self._serving)
        return await asyncio.wrap_future(asking)

    async def _ask(self, prompt: str, options: list[str], seconds: float | None) -> str:
        async with self._asking:
            self.question = question = Question(prompt, options, self._serving.create_future())
            self._desk.changes.note()
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.wait([question.answer])
            except TimeoutError:
                raise ApprovalTimeoutError(prompt) from None
            finally:
                self.question = None
                self._desk.changes.note()
            return "Deny" if question.answer.cancelled() else question.answer.result()


class Talks:
    """What runs in this process, by its session: one at a time."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._opening: set[asyncio.Task[Any]] = set()
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let work run while the block runs; then end it: its sessions can go on."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                for each in self._opening:
                    each.cancel()
                if self._opening:
                    await asyncio.wait([*self._opening])
                await asyncio.gather(*(work.end() for work in self._works.values()))

    def find(self, session_id: str) -> Talk | None:
        """Return the turn that runs in a session; None: none runs here."""
        work = self._works.get(session_id)
        return work if isinstance(work, Talk) else None

    async def begin(self, session_id: str, work: Work) -> None:
        """Begin some work; return when it runs. Raises what refuses it, `SessionConflict` while other work runs."""
        tasks, opening = self._group, asyncio.current_task()
        if session_id in self._works or tasks is None:
            raise SessionConflict(session_id, f"'{session_id}' runs already. Wait for its end")
        assert opening is not None
        self._works[session_id] = work
        self._opening.add(opening)
        try:
            await work.open()
        except BaseException:
            del self._works[session_id]
            raise
        finally:
            self._opening.discard(opening)
        tasks.create_task(self._run(session_id, work))

    async def _run(self, session_id: str, work: Work) -> None:
        try:
            await work.work()
        finally:
            del self._works[session_id]

    def answer(self, session_id: str, question_id: str, option: int) -> str:
        """Answer a question of a turn, and return the chosen option. Raises `SessionNotFound`, `SessionConflict`."""
        talk = self.find(session_id)
        if talk is None:
            raise SessionNotFound(session_id)
        question = talk.question
        if question is None or question.id != question_id or question.answer.done():
            raise SessionConflict(session_id, "this question is answered, or was withdrawn")
        if not 0 <= option < len(question.options):
            raise SessionConflict(session_id, f"the question has no option {option}; reload the page")
        question.answer.set_result(question.options[option])
        return question.options[option]
