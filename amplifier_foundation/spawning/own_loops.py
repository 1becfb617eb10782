"""Run sessions in event loops of their own, each in a thread: a call that blocks holds up its session alone.

The loop of the caller (the serving loop) owns the work. A session's thread shares with it:

* the store: the contract of stores allows any thread and loop;
* the router and the plugins: their calls run in the serving loop, and the session waits for them;
* the modules: each session has its own.

A cancelled session ends by itself, as in the serving loop. One whose thread hangs is given up after `PATIENCE` seconds,
one that ignores its cancellation after `CLEANUP` seconds: its delivery goes on without it, its fence closes, and from
then on it can store and emit nothing. Its thread is a daemon and ends with its work, or with the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from amplifier_core.errors import SessionConflict
from amplifier_core.frozen import slotted
from amplifier_core.process_forks import FORKED, end_forks_of

from .stalls import Stall, StallWatch, stack_of, stack_of_task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Future
    from typing import Self

    from amplifier_core.events import SessionEvent
    from amplifier_core.hook_data import Runner, RunResult, SessionBuilder, SpawnRequest
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore

    from ..events import Emitter
    from .child import Spawn

    Report = Callable[[str], None]

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds without a turn of its loop until a cancelled session is given up."""
CLEANUP = 10.0
"""Seconds for a cancelled session to end while its loop turns; from `PATIENCE` on, it is cancelled again and again."""
CANCEL_EVERY = 1.0
"""Seconds."""
MOST_TASKS = 3
"""Tasks in the report about a session that ignores its cancellation."""
IDLE = 16
"""Most loops kept for the next sessions."""
ASIDE = "session call"
"""The beginning of the names of threads with calls of `asyncio.to_thread` in sessions."""
LEAVING = 1.0
"""Seconds for these threads to end with the process."""


class _Threads(ThreadPoolExecutor):
    """Threads for the calls of a session; a fork that returns from its call ends, and waits for no other call."""

    def submit(self, call: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        """Schedule a call."""
        process = os.getpid()

        def run() -> T:
            try:
                return call(*arguments, **named)
            finally:
                if os.getpid() != process:
                    os._exit(FORKED)

        return super().submit(run)


class SessionLoop:
    """An event loop that turns in a daemon thread of its own until `end`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._make_task)
        end_forks_of(self.loop)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks that have not ended, the oldest first."""
        self._ends = False
        self._thread = threading.Thread(target=self._turn, name="session loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self.loop.close()
            raise

    @property
    def thread(self) -> int:
        """The number of its thread."""
        return self._thread.ident or 0

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in this loop, soon; not after its end."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """End the loop after its present turn; idempotent."""
        self._ends = True
        self.call(self.loop.stop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a session's work, then end the tasks that it leaves behind: the next session begins in an empty loop.

        Threads beside the loop are the session's own, too: one that hangs keeps no other session waiting.
        """
        aside = _Threads(thread_name_prefix=ASIDE)
        self.loop.set_default_executor(aside)
        try:
            return await work
        finally:
            aside.shutdown(wait=False)
            left = self.tasks.keys() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=PATIENCE)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task as the loop would, and know it while it runs: `asyncio.all_tasks` looks at those of all loops."""
        task = asyncio.Task(work, loop=loop, **options)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def _turn(self) -> None:
        while not self._ends:
            with suppress(SystemExit, KeyboardInterrupt):  # of a tool: its task has them
                self.loop.run_forever()
        self.loop.close()


@slotted
class _Work:
    """The work of one session: begun and ended in its own loop, awaited in the serving loop."""

    serving: asyncio.AbstractEventLoop
    ended: asyncio.Future[None]
    task: asyncio.Task[Any] | None = None

    def begin(self, own: SessionLoop, work: Coroutine[Any, Any, Any]) -> None:
        self.task = own.loop.create_task(own.run(work))
        self.task.add_done_callback(lambda task: work.close())  # a task that is cancelled at once has not begun it
        self.task.add_done_callback(self._report_end)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def answer(self, question: asyncio.Future[None]) -> None:
        with suppress(RuntimeError):
            self.serving.call_soon_threadsafe(_resolve, question)

    def _report_end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # of a session that was given up, nobody asks for it
        self.answer(self.ended)


class SessionLoops:
    """A loop for each running session; an idle one serves the next session. A context manager."""

    def __init__(self) -> None:
        self.stalls = StallWatch()
        self.hanging = 0
        """Threads of given up sessions that still hang."""
        self._idle: list[SessionLoop] = []

    def __enter__(self) -> Self:
        self.stalls.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        while self._idle:
            self._idle.pop().end()
        self.stalls.__exit__(*exc)

    async def run(self, work: Coroutine[Any, Any, T], fence: Fence) -> T:
        """Run `work` in a loop of its own, as if it were awaited here.

        A cancellation cancels the work, and waits for its end; when it does not end, `fence` closes, and
        `CancelledError` is raised without it.
        """
        serving = asyncio.get_running_loop()
        try:
            own = self._idle.pop() if self._idle else SessionLoop()
        except BaseException:
            work.close()
            raise
        run = _Work(serving, serving.create_future())
        cancellation: asyncio.CancelledError | None = None

        def report(stall: Stall) -> None:
            with suppress(RuntimeError):  # the serving loop is closed
                text = f"has blocked its thread for {stall.seconds:.0f} s: {stall.stack}"
                serving.call_soon_threadsafe(fence.report, text)

        with self.stalls.watch(own.loop, own.thread, report):
            own.call(run.begin, own, work)
            try:
                await asyncio.wait({run.ended})
            except asyncio.CancelledError as error:
                cancellation = error
                own.call(run.cancel)
                problem = await _wait_for_end(own, run)
                if problem is not None:
                    self._give_up(own, run, fence, problem)
                    raise
        if len(self._idle) < IDLE and not own.tasks:
            self._idle.append(own)
        else:
            own.end()
        assert run.task is not None  # it has ended
        if cancellation is not None and run.task.cancelled():
            raise cancellation  # the task's own error is a new one, in which anyio does not see its scope
        result: T = run.task.result()
        return result

    def _give_up(self, own: SessionLoop, run: _Work, fence: Fence, problem: str) -> None:
        fence.is_closed = True
        self.hanging += 1

        def come_back(ended: asyncio.Future[None]) -> None:
            self.hanging -= 1
            own.end()

        run.ended.add_done_callback(come_back)
        hanging = f"; {self.hanging} threads hang" if self.hanging > 1 else ""
        fence.report(f"is given up, {problem}{hanging}")


@slotted
class Fence:
    """Keeps a session that was given up from the store and the router, whenever its thread comes back."""

    session_id: str
    report: Report
    is_closed: bool = False

    def check(self) -> None:
        """Raise `SessionConflict` for a session that was given up."""
        if self.is_closed:
            raise SessionConflict(self.session_id, f"session '{self.session_id}' was given up when it did not end")


class Checked(Protocol):
    """Says whether a session may still use its store."""

    def check(self) -> None:
        """Raise why not."""
        ...


class FencedStore:
    """A store for one session: `store` itself until the fence closes, also to `isinstance`."""

    def __init__(self, store: SessionStore, fence: Checked) -> None:
        self._store = store
        self._fence = fence

    @property  # type: ignore[misc]  # also once the fence is closed, when each other attribute raises
    def __class__(self) -> type[SessionStore]:  # type: ignore[override]
        return self._store.__class__

    def __getattr__(self, name: str) -> Any:
        self._fence.check()
        return getattr(self._store, name)


class OuterRouter:
    """Emits in the serving loop: a router belongs to one loop."""

    def __init__(self, router: Emitter, serving: asyncio.AbstractEventLoop, fence: Fence) -> None:
        self._router = router
        self._serving = serving
        self._fence = fence

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        project: str | None = None,
        event_id: str | None = None,
    ) -> SessionEvent:
        """Publish an event, as `EventRouter.emit` does."""
        self._fence.check()
        about: dict[str, Any] = {"cause": cause, "depth": depth, "project": project, "event_id": event_id}
        emitting = self._router.emit(event_name, data, source_session_id, **about)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(emitting, self._serving))

    def publish(self, event: SessionEvent) -> None:
        """Hand a stored event to the subscribers, as `EventRouter.publish` does."""
        self._fence.check()
        self._serving.call_soon_threadsafe(self._router.publish, event)  # type: ignore[attr-defined]  # the serving one


@slotted
class OwnLoopRunner:
    """Runs a session by another runner, in a loop of its own."""

    runner: Runner
    loops: SessionLoops
    fence: Fence

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult | str:
        """Run the session and return what came of it."""
        return await self.loops.run(self.runner.run(request, build), self.fence)

    async def stop(self, session_id: str) -> bool:
        """Ask the session to end."""
        return await self.runner.stop(session_id)


def run_in_own_loop(spawn: Spawn, loops: SessionLoops, report: Report) -> None:
    """Have a prepared `spawn` run in a loop of its own; `report` is called with what its thread does wrong.

    The caller's loop is the serving loop, and the observer of the spawn is called in it.
    """
    serving, fence = asyncio.get_running_loop(), Fence(spawn.request.session_id, report)
    spawn.runner = OwnLoopRunner(spawn.runner, loops, fence)
    if spawn.store is not None:
        spawn.store = cast("SessionStore", FencedStore(spawn.store, fence))
    if spawn.router is not None:
        spawn.router = OuterRouter(spawn.router, serving, fence)
    if spawn.plugins is not None:
        spawn.plugins = spawn.plugins.bound_to(serving)
    observe = spawn.observe
    if observe is not None:

        def observe_in_serving_loop(session: AmplifierSession) -> None:
            async def call() -> None:
                observe(session)

            fence.check()
            asyncio.run_coroutine_threadsafe(call(), serving).result()

        spawn.observe = observe_in_serving_loop


def must_be_killed() -> bool:
    """Return whether this process cannot end by itself: Python would wait for a call that does not return."""
    ends = monotonic() + LEAVING
    threads = [each for each in threading.enumerate() if each.name.startswith(ASIDE)]
    for each in threads:
        each.join(max(0.0, ends - monotonic()))
    return any(each.is_alive() for each in threads)


async def _wait_for_end(own: SessionLoop, run: _Work) -> str | None:
    """Wait until the cancelled work has ended; return the reason to give it up, None when it has ended."""
    ends, pause = run.serving.time() + CLEANUP, PATIENCE
    while not run.ended.done():
        question: asyncio.Future[None] = run.serving.create_future()
        own.call(run.answer, question)
        try:
            await asyncio.wait({run.ended, question}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not (run.ended.done() or question.done()):
                return f"its thread hangs: {stack_of(own.thread)}"
            left = ends - run.serving.time()
            if left <= 0 and not run.ended.done():
                return f"it ignores its cancellation: {_stacks_of(own)}"
            await asyncio.wait({run.ended}, timeout=min(pause, max(0.0, left)))
        except asyncio.CancelledError:
            pass
        own.call(run.cancel)
        pause = CANCEL_EVERY
    return None


def _stacks_of(own: SessionLoop) -> str:
    """Return where its tasks wait, the newest first: the others wait for these."""
    stacks = [stack_of_task(task) for task in reversed(list(own.tasks))]
    return "; ".join([stack for stack in stacks if stack][:MOST_TASKS])


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
