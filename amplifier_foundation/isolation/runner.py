"""Run spawned sessions in processes of their own: the runner `runner-subprocess`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.entry_points import find_entry_points
from amplifier_core.errors import SessionNotFound, SessionProcessEnded
from amplifier_core.hook_data import RunResult
from amplifier_core.process_ends import add_ending

from ..sessions.costs import USAGE, read_spent, spent_of
from ..sessions.held import held_of
from ..sessions.history import is_user_turn
from ..sessions.once import marks_of
from ..sessions.uncounted import count_answers
from ..sessions.untrusted import UNTRUSTED
from ..sessions.usage import Usage
from ..spawning.child_session import ChildBuilder, tell_parent
from ..spawning.requests import spawn_of
from .error_forms import read_error
from .jobs import Job, make_job
from .processes import Child
from .serving import Services
from .zygotes import Zygotes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from amplifier_core.hook_data import SessionBuilder, SpawnRequest

    from ..spawning.child import Spawn

TRIES = 3
"""Processes for one session; all but the last were killed while they waited for it."""
GRACE = 5.0
"""Seconds for a cancelled session to store its last messages; then its process is killed."""


class SubprocessRunner:
    """Runs each session in a child of a zygote; at most `MAX_SUBPROCESS` at a time, the others wait."""

    def __init__(self, zygotes: Zygotes | None = None, paths: Iterable[str | Path] = ()) -> None:
        self._zygotes = zygotes if zygotes is not None else Zygotes()
        self._paths = [str(Path(each).absolute()) for each in paths]
        self._running: dict[str, Child] = {}

    def with_paths(self, paths: Iterable[str | Path]) -> SubprocessRunner:
        """Return a runner of the same processes whose sessions look for modules in these folders, too."""
        return SubprocessRunner(self._zygotes, paths)

    def pids(self) -> list[int]:
        """Return the ids of the processes that fork."""
        return self._zygotes.pids()

    def close(self) -> None:
        """End all processes."""
        self._zygotes.close()

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult:
        """Run the instruction in a process of its own. Cancelled, ask the session, then kill its process.

        Raises `SessionProcessEnded` and `LimitReached` for a process that ends without a result, `ValueError` for a
        folder that is none and for impossible limits.
        """
        if isinstance(build, ChildBuilder):
            return await self._run_spawn(build)
        return await self._run_request(request)

    async def stop(self, session_id: str) -> bool:
        """Ask a session to end when its running tools have finished."""
        child = self._running.get(session_id)
        if child is not None:
            child.link.tell("stop")
        return child is not None

    async def _run_request(self, request: SpawnRequest) -> RunResult:
        """Run a session that nobody but its request describes: of installed modules, without a store."""
        spawn = spawn_of(request)
        result = await self._run_spawn(ChildBuilder(spawn))
        usage = spawn.usage.to_dict() if spawn.usage is not None else {}
        return RunResult(result.text, turns=spawn.turns, usage=usage)

    async def _run_spawn(self, build: ChildBuilder) -> RunResult:
        spawn = build.spawn
        services = Services(spawn)
        build.is_used = True
        try:
            job = make_job(spawn, services.tree, services.observe_child())
            packed = job.pack()
            child, tries = await self._run_child(spawn, job, services, packed), 1
            while not services.has_begun and (child.unsafe_module is not None or tries < TRIES):
                if child.unsafe_module is not None:
                    self._zygotes.renounce(child.unsafe_module)
                else:
                    tries += 1
                child = await self._run_child(spawn, job, services, packed)
        finally:
            self._running.pop(spawn.request.session_id, None)
            self._zygotes.prepare()
            await services.end()
            await _take_results(spawn, services.results)
        results = services.results
        if results is None:
            raise child.explain()
        if imported := results.get("imported"):
            self._zygotes.learn(imported, _packages_of(job))
        if results.get("error") is not None:
            raise _read_failure(spawn, results["error"])
        return RunResult(str(results["text"]), turns=spawn.turns)

    async def _run_child(self, spawn: Spawn, job: Job, services: Services, packed: bytes) -> Child:
        """Run the process of a job to the end of its session; a process that leaves nothing behind ends meanwhile."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._zygotes.places.take())
            child = await stack.enter_async_context(self._start(job, services))
            self._running[spawn.request.session_id] = child
            child.send(self._describe_setting(job), packed)
            services.tell_through(child.link)
            await self._wait(spawn, child, services.done)
            if services.done.is_set():
                ending = asyncio.create_task(_end(child, stack.pop_all()))
                add_ending(ending)
                await asyncio.sleep(0)  # it begins: cancelled before, it would close nothing
        return child

    def _start(self, job: Job, services: Services) -> Child:
        session_id = job.request.session_id
        ends = self._zygotes.fork(session_id)
        return Child(session_id, ends, job.limits, services.serve)

    def _describe_setting(self, job: Job) -> dict[str, Any]:
        folder = str(Path(job.request.working_dir).absolute()) if job.request.working_dir else ""
        of_process = self._zygotes.describe_process(job, self._paths)
        return {**of_process, "folder": folder, "limits": asdict(job.limits)}

    async def _wait(self, spawn: Spawn, child: Child, done: asyncio.Event) -> None:
        """Wait until the session is done, or its process has ended.

        A request to stop reaches the session, and a cancellation of this task ends it.
        """
        assert spawn.child is not None  # `observe_child` made it
        token, parents = spawn.child.coordinator.cancellation, spawn.parent.coordinator.cancellation
        token.on_change(lambda: child.link.tell("stop", at_once=token.is_immediate))
        parents.register_child(token)
        if spawn.stopping:
            token.request_graceful()
        waits = [asyncio.create_task(done.wait()), asyncio.create_task(child.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            child.link.tell("cancel")
            try:
                await asyncio.wait({waits[1]}, timeout=GRACE)
            finally:
                child.kill()
            raise
        finally:
            for each in waits:
                each.cancel()
            parents.unregister_child(token)


async def _end(child: Child, stack: AsyncExitStack) -> None:
    """Let a process end that has nothing left to do, and give its place back; kill it if it does not."""
    async with stack:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await child.wait()


def _packages_of(job: Job) -> Iterator[str]:
    """Yield the packages of the installed modules in the plan of a job."""
    config = job.request.config
    session = config.get("session") or {}
    specs = [session.get("orchestrator"), session.get("context")]
    specs += [each for section in ("providers", "tools", "hooks") for each in config.get(section) or ()]
    for spec in specs:
        entry = {"module": spec} if isinstance(spec, str) else spec
        if not isinstance(entry, dict) or entry.get("source") or entry.get("sandbox"):
            continue  # it is not installed, or imported in its sandbox alone
        if isinstance(entry.get("module"), str):
            for found in find_entry_points("amplifier.modules", entry["module"]):
                yield found.value.partition(":")[0].partition(".")[0]


async def _take_results(spawn: Spawn, results: Mapping[str, Any] | None) -> None:
    """Write down what came of a session, as a session of this process would; of a dead one, what the store knows."""
    if results is None or "turns" not in results:
        if spawn.store is not None and spawn.is_kept:
            try:
                record = await count_answers(spawn.store, await spawn.store.get(spawn.request.session_id))
                history = await spawn.store.read(spawn.request.session_id, spawn.recorded)
            except SessionNotFound:
                return
            metadata, before = record.metadata, read_spent(spawn.metadata).usage
            spawn.usage = (spent_of(record).usage or Usage()).since(before or Usage())
            spawn.metadata = {**metadata, USAGE: spawn.metadata.get(USAGE)}
            spawn.held, spawn.marks = held_of(metadata), marks_of(metadata)
            spawn.turns += sum(map(is_user_turn, history))
            tell_parent(spawn, is_tainted=UNTRUSTED in metadata)
        return
    spawn.turns += int(results["turns"])
    spawn.usage = Usage.from_dict(results["usage"]) if results["usage"] is not None else None
    spawn.ledger, spawn.partial, spawn.stopped = results["ledger"], str(results["partial"]), bool(results["stopped"])
    spawn.held, spawn.marks, spawn.taint = results["held"], results["marks"], results["taint"]
    tell_parent(spawn, is_tainted=bool(spawn.taint))


def _read_failure(spawn: Spawn, written: Mapping[str, Any]) -> Exception:
    if written.get("name") == "CancelledError":
        return SessionProcessEnded(spawn.request.session_id, "cancelled its session")
    return read_error(written)
