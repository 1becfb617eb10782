"""Be the process of one session: read its job, run it, tell what came of it, and end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import pickle
import platform
import socket
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, cast

from amplifier_core import search_path
from amplifier_core.errors import LimitReached, SessionProcessEnded
from amplifier_core.events import TOOL_ERROR
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.process_ends import note_lost_parent, run_process_ends
from amplifier_core.session import AmplifierSession
from amplifier_core.transcript import Transcript

from ..bundle.model import Bundle
from ..bundle.prepared import PreparedBundle
from ..bundle.sections import DEFAULT_SESSION
from ..sessions.failures import describe_failure
from ..spawning.child import Spawn
from ..spawning.child_session import ChildBuilder
from ..spawning.family import TREE, Tree
from ..spawning.runners import InProcessRunner
from .above import (
    ApprovalsAbove,
    BudgetAbove,
    DisplayAbove,
    DocumentsAbove,
    EventBridge,
    InboxAbove,
    NestingDisplayAbove,
    PluginsAbove,
    RouterAbove,
    StoreAbove,
)
from .error_forms import write_error
from .jobs import Job
from .limits import ProcessLimits
from .link import HEAD, Link, LinkClosed, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core.storage import SessionStore

    from ..spawning.budget import Budget
    from .jobs import Above

GRACE = 5.0
"""Seconds for a session to end its tools when its parent is gone."""


def run_process(
    own: socket.socket, blocking: socket.socket, protect: Callable[[], None], *, is_forked: bool = True
) -> NoReturn:
    """Be the process of one session from here on, to the end of the process; `protect` is called first."""
    code = 70  # EX_SOFTWARE
    try:
        protect()
        run_job(own, blocking, is_forked=is_forked)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        leave(code)


def run_job(own: socket.socket, blocking: socket.socket, *, is_forked: bool) -> None:
    """Run the job that comes through the socket `own`, and return at the end of its session.

    A fork tells what it imported, so that later ones share it.
    """
    known = len(sys.modules) if is_forked else sys.maxsize
    rehearse()
    try:
        setting, packed = json.loads(_receive(own)), _receive(own)
    except LinkClosed:  # there is no job for this process
        leave(0)
    if setting["path"] is not None:  # else this is another machine, with modules and an environment of its own
        search_path.replace_all(setting["path"])
        os.environ.clear()
    os.environ.update(setting["environ"])
    problem = _enter_folder(setting["folder"]) if setting["folder"] else ""
    limits = ProcessLimits(**setting["limits"])
    limits.set()
    gc.enable()
    asyncio.run(_Child(packed, limits, blocking, known, problem).run(own))


def _enter_folder(folder: str) -> str:
    """Make a folder the working folder; return why it cannot be, '' if it is."""
    try:
        os.chdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return f"the working folder {folder} does not exist or is not a directory on {platform.node()}"
    except OSError as error:
        return f"the working folder {folder} cannot be entered on {platform.node()}: {error.strerror}"
    return ""


def rehearse() -> None:
    """Take one turn for nobody, with our own modules where they are installed.

    A forked process copies a page of memory when it first writes there, and Python writes wherever it looks. That takes
    longer than a short turn itself; a child that waits for its job has done it before.
    """
    session = {name: dict(spec) for name, spec in DEFAULT_SESSION.items()}
    provider = {"module": "provider-playbook", "config": {"otherwise": {"say": "Ready."}}}
    plan = {"session": session, "providers": [provider]}
    request = SpawnRequest("rehearsal", "", "rehearsal", "Are you ready?", plan, "")
    own, other = socket.socketpair()
    level = logging.root.manager.disable
    logging.disable()
    with own, other, suppress(Exception):
        asyncio.run(_play(pickle.dumps(Job(request)), own, other))
    logging.disable(level)


async def _play(packed: bytes, own: socket.socket, other: socket.socket) -> None:
    async def answer(name: str, arguments: dict[str, Any]) -> None:
        """Be a parent that listens to nothing."""

    other.setblocking(False)
    async with Link(other, answer):
        await _Child(packed, ProcessLimits(), None).run(own)


def _receive(own: socket.socket) -> bytes:
    (size,) = HEAD.unpack(receive(own, HEAD.size))
    return receive(own, size)


def leave(code: int) -> NoReturn:
    """End this process with what it printed, after its calls of `at_process_end`."""
    run_process_ends()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _imported_after(known: int) -> list[str]:
    """Return the modules after the first `known` ones; the names of those are left alone, in memory that is shared."""
    return list(islice(reversed(sys.modules), max(0, len(sys.modules) - known)))


class _Child:
    """The session of one job, in the loop of this process."""

    def __init__(
        self,
        packed: bytes,
        limits: ProcessLimits,
        blocking: socket.socket | None,
        known: int = 0,
        problem: str = "",
    ) -> None:
        self._known = known
        self._problem = problem
        """Why the session cannot run here."""
        self._packed = packed
        self._limits = limits
        self._blocking = blocking
        self._spawn: Spawn | None = None
        self._bridge: EventBridge | None = None
        self._asked_events: list[tuple[str, Sequence[str]]] = []
        """What the parent listens to, asked before the session is made."""
        self._is_stopping = False
        self._is_out_of_memory = False
        self._task: asyncio.Task[dict[str, Any]] | None = None

    async def run(self, own: socket.socket) -> None:
        """Run the session while the parent is there; the end of the parent ends the session, too."""
        own.setblocking(False)
        async with Link(own, self._serve) as link:
            link.at_end = note_lost_parent
            handler = _Logs(link)
            logging.getLogger().addHandler(handler)
            self._task = asyncio.create_task(self._run_session(link))
            gone = asyncio.create_task(link.wait_closed())
            await asyncio.wait({self._task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=GRACE)
            else:
                leaves = _has_children()
                await link.call("done", **self._task.result(), leaves=leaves, imported=_imported_after(self._known))
                if self._known:
                    leave(leaves)
            logging.getLogger().removeHandler(handler)
            gone.cancel()
            await asyncio.wait({gone})

    async def _serve(self, name: str, arguments: dict[str, Any]) -> None:
        """Do as the parent says.

        `listen` to events; `stop` the session when its tools have finished, or at once; or `cancel` its task.
        """
        assert self._task is not None  # it began before the link was read
        if name == "listen":
            self._listen(**arguments)
            return
        if name == "cancel":
            self._task.cancel()
            return
        self._is_stopping = True
        if self._spawn is not None:
            self._spawn.ask_to_stop()
            if arguments.get("at_once") and self._spawn.child is not None:
                await self._spawn.child.coordinator.request_cancel(immediate=True)

    def _listen(self, session_id: str, events: Sequence[str]) -> None:
        if self._bridge is None:
            self._asked_events.append((session_id, events))
        else:
            self._bridge.listen(session_id, events)

    async def _run_session(self, link: Link) -> dict[str, Any]:
        """Return what came of the session; its failure is a part of that."""
        text, error = "", None
        turns = 0
        try:
            if self._problem:
                raise ValueError(self._problem)
            job = self._unpack()
            turns = job.turns
            self._bridge = EventBridge(link, job.listened)
            for each in self._asked_events:
                self._bridge.listen(*each)
            spawn = self._spawn = make_spawn(job, link, self._blocking, self._bridge)
            spawn.stopping = spawn.stopping or self._is_stopping
            if self._limits.memory is not None:
                spawn.observe = self._watch_memory
            result = await InProcessRunner().run(spawn.request, ChildBuilder(spawn))
            text = result.text
            if self._is_out_of_memory:
                raise MemoryError
        except asyncio.CancelledError:
            error = {"name": "CancelledError"}
        except Exception as failure:
            error = write_error(self._explain(failure))
        ended = describe_end(self._spawn, turns) if self._spawn is not None else {}
        return {"text": text, "error": error, **ended}

    def _watch_memory(self, session: AmplifierSession) -> None:
        """End the session when a tool finds no more memory: other calls may fail of it halfway."""

        def end(event: str, data: dict[str, Any]) -> None:
            if (data.get("error") or {}).get("type") == "MemoryError":
                self._is_out_of_memory = True
                session.coordinator.cancellation.request_immediate()

        session.coordinator.hooks.register(TOOL_ERROR, end, name="memory-limit")

    def _unpack(self) -> Job:
        try:
            job: Job = pickle.loads(self._packed)
        except Exception as error:
            reason = f"did not begin: its plan cannot be read in another process: {error}"
            raise SessionProcessEnded("", reason) from error
        self._packed = b""
        return job

    def _explain(self, failure: Exception) -> Exception:
        """Return a failure with the remedy that this process alone can tell; one of a limit names the limit."""
        if isinstance(failure, MemoryError) and self._limits.memory is not None:
            session_id = self._spawn.request.session_id if self._spawn is not None else ""
            return LimitReached(session_id, "memory", self._limits.describe("memory"))
        describe_failure(failure, self._spawn.child if self._spawn is not None else None)
        return failure


def make_spawn(job: Job, link: Link, blocking: socket.socket | None, bridge: EventBridge) -> Spawn:
    """Return the spawn of a job, with stand-ins for everything above it."""
    store = None
    if "store" in job.has and blocking is not None:
        store = (DocumentsAbove if "documents" in job.has else StoreAbove)(link, blocking)
    approvals = None
    if "approvals" in job.has:
        approvals = (InboxAbove if "holds" in job.has else ApprovalsAbove)(link, tells_who="tells_who" in job.has)
    prepared = job.prepared or PreparedBundle.of(Bundle(name=job.request.bundle or "session"))
    spawn = Spawn(
        prepared=prepared,
        request=job.request,
        parent=_make_parent(job, link, approvals),
        transcript=Transcript(job.messages),
        turns=job.turns,
        begun=job.begun,
        recorded=job.recorded,
        resumed=job.resumed,
        project=job.project,
        store=cast("SessionStore | None", store),
        router=RouterAbove(link) if "router" in job.has else None,
        plugins=cast("Any", PluginsAbove(link)) if "plugins" in job.has else None,
        cause=job.cause,
        capabilities={**job.capabilities, TREE: _make_tree(job, link, bridge)},
        approvals=approvals,
        unattended=job.unattended,
        acts=job.acts,
        accepts_unfinished=job.accepts_unfinished,
        needs_answer=job.needs_answer,
        metadata=dict(job.metadata),
        held=dict(job.held),
        stopping=job.stopping,
    )
    return spawn


def _make_parent(job: Job, link: Link, approvals: Any) -> AmplifierSession:
    """Return a session that stands for the parent; it has no modules and takes no turn."""
    above = job.above
    config = above.config if above is not None else dict(job.request.config)
    display = None
    if "display" in job.has:
        display = NestingDisplayAbove(link) if "nests" in job.has else DisplayAbove(link)
    parent = AmplifierSession(
        config,
        session_id=job.request.parent_id or None,
        approval_system=approvals,
        display_system=display,
        permissions=_make_gate(above, link) if above is not None else None,
    )
    if above is not None:
        parent.coordinator.mount_points["module-source-resolver"] = above.resolver
        parent.coordinator.register_capability("mention_resolver", above.mentions)
    return parent


def _make_gate(above: Above, link: Link) -> PermissionGate | None:
    if above.policy is None:
        return None
    remember = (lambda rule: link.tell("remember", rule=rule)) if above.remembers else None
    gate = PermissionGate(Policy(above.policy.layers, remember), above.folder)
    gate.refusal, gate.untrusted, gate.acts = above.refusal, above.untrusted, above.acts
    return gate


def _make_tree(job: Job, link: Link, bridge: EventBridge) -> Tree:
    budgets = [BudgetAbove(link, number, limits, scope) for number, (limits, scope) in enumerate(job.budgets)]
    return Tree(
        job.spawn_limits,
        job.spawned,
        observers=(bridge.observe,),
        budgets=cast("Sequence[Budget]", budgets),
        accounts=job.accounts,
    )


def describe_end(spawn: Spawn, turns: int) -> dict[str, Any]:
    """Return the results of an ended spawn for its parent; `turns` is the number of turns before."""
    return {
        "turns": spawn.turns - turns,
        "usage": spawn.usage.to_dict() if spawn.usage is not None else None,
        "ledger": spawn.ledger,
        "partial": spawn.partial,
        "stopped": spawn.stopped,
        "held": spawn.held,
        "marks": spawn.marks,
        "taint": spawn.taint,
    }


class _Logs(logging.Handler):
    """Hands warnings and errors over to the parent's log."""

    def __init__(self, link: Link) -> None:
        super().__init__(logging.WARNING)
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, with secrets redacted."""
        from amplifier_core.utils.secrets import redact_text

        self._link.tell("log", name=record.name, level=record.levelno, text=redact_text(record.getMessage()))
