"""Take the turns of a workflow's agents: each attempt at a task has a session of its own, below that of the run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound
from amplifier_core.utils.secrets import redact_text

from ..sessions.accounts import Account
from ..sessions.exporting import call_line
from ..sessions.held import HELD
from ..sessions.presence import refuse_occupied
from ..sessions.recording import shield_to_completion
from ..sessions.records import with_members
from ..sessions.stored_history import stored_transcript
from ..spawning.budget import Budget, Limits
from ..spawning.child import prepare_spawn, share_stored
from ..spawning.family import TREE, Tree
from ..spawning.life import run_spawn, settle_spawn
from ..spawning.limits import time_limit
from ..spawning.own_loops import run_in_own_loop
from ..spawning.runners import InProcessRunner
from .engine import Held, TurnResult
from .errors import OUTPUT_INVALID, FlowError
from .formats import wish
from .outputs import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Transcript

    from ..spawning.agents import AgentSpawner
    from ..spawning.own_loops import SessionLoops
    from .engine import TurnRequest

logger = logging.getLogger(__name__)

MOST_SOURCES = 4
"""Forked histories that are kept at hand."""
MOST_CALLS, LONGEST_CALL = 20, 200
"""Tool calls of a failed attempt that the next one is told, and the characters of each."""
LONGEST_ID = 100
"""Characters of the id of a task's session, before it is shortened."""


class AgentTurns:
    """Takes turns with the agents of a bundle, below the session `parent` of the run.

    A turn with a time limit has an event loop of its own of `loops`: it is given up when it does not obey. With
    `accepts_unfinished`, an answer that was cut, or a turn that stopped before one, counts as an answer.
    """

    def __init__(
        self,
        agents: AgentSpawner,
        store: SessionStore,
        parent: AmplifierSession,
        loops: SessionLoops,
        *,
        accepts_unfinished: bool = False,
    ) -> None:
        self._agents = agents
        self._loops = loops
        self._store = store
        self._parent = parent
        self._run_id = parent.session_id
        self._accepts_unfinished = accepts_unfinished
        self._sources: dict[str, tuple[SessionRecord, Transcript]] = {}
        self._cached: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, request: TurnRequest) -> TurnResult:
        """Return the answer to a prompt; an attempt that was cut goes on, and one that is finished is not made again.

        With a schema, the service is asked to enforce it, and an answer that does not fit is corrected by further turns
        of the same session. Raises `Held`, `FlowError` and the errors of spawned sessions.
        """
        async with self._choose_session(request) as session_id:
            return await self._take(request, session_id)

    @asynccontextmanager
    async def _choose_session(self, request: TurnRequest) -> AsyncIterator[str]:
        """Yield the id of the session of an attempt: of its own, or of the earlier run that asked the same."""
        own = name_session(self._run_id, request.key, request.attempt)
        if not request.task.cache or request.attempt > 1:
            yield own
            return
        shared = self._name_cached(request)
        async with self._cached[shared]:
            yield own if await self._is_occupied(shared) else shared

    def _name_cached(self, request: TurnRequest) -> str:
        task, bundle = request.task, self._agents.prepared.bundle
        schema = Shape(task.output_schema).describe() if task.output_schema is not None else None
        asked = [task.agent, request.prompt, request.source, schema, bundle.name, bundle.digest]
        whole = json.dumps([*asked, self._agents.working_dir])
        return f"cached-{hashlib.sha256(whole.encode()).hexdigest()[:24]}"

    async def _is_occupied(self, session_id: str) -> bool:
        """Return whether another process is about to give the cached answer: this one then asks for itself."""
        try:
            record = await self._store.get(session_id)
            refuse_occupied(replace(record, metadata=with_members(record.metadata, {HELD: {}})))
        except SessionNotFound:
            return False
        except SessionConflict:
            return True
        return False

    async def _take(self, request: TurnRequest, session_id: str) -> TurnResult:
        prompt = f"{request.prompt}{await self._warn(request)}"
        try:
            text = await self._say(request, session_id, prompt)
        except (SessionExists, SessionConflict):
            own = name_session(self._run_id, request.key, request.attempt)
            if session_id == own:
                raise
            return await self._take(request, own)  # another process was first with the cached answer
        if request.task.output_schema is None:
            return TurnResult(text, session_id)
        shape, left = Shape(request.task.output_schema), request.task.max_schema_retries
        value, problems = shape.read(text)
        while problems and left:
            left -= 1
            text = await self._say(request, session_id, _describe_problems(problems, shape), anew=True)
            value, problems = shape.read(text)
        if problems:
            message = f"its answer does not fit its schema: {'; '.join(problems)}"
            raise FlowError(OUTPUT_INVALID, message, request.task.id, is_retryable=True)
        return TurnResult(value, session_id)

    async def _say(self, request: TurnRequest, session_id: str, prompt: str, *, anew: bool = False) -> str:
        """Take one turn in the session of an attempt."""
        spawn = await self._agents.make_spawn(str(request.task.agent), prompt, session_id, runner=request.task.runner)
        spawn.metadata = {**spawn.metadata, "task": request.key, "flow": self._run_id}
        spawn.accepts_unfinished, spawn.needs_answer = self._accepts_unfinished, not self._accepts_unfinished
        tree = self._make_tree(request)
        spawn.capabilities = {**spawn.capabilities, TREE: tree, **wish(request.task.output_schema)}
        if request.source is not None:
            share_stored(spawn, *await self._read_source(request.source))
        await prepare_spawn(spawn, resume=True, anew=anew)
        outer = spawn.store, spawn.router, spawn.plugins
        if request.task.timeout is not None and isinstance(spawn.runner, InProcessRunner):
            run_in_own_loop(spawn, self._loops, logger.warning)  # its end is enforced
        outcome = await run_spawn(spawn, request.task.timeout or time_limit(tree.limits))
        spawn.store, spawn.router, spawn.plugins = outer  # those in the other loop are closed to a turn given up
        await shield_to_completion(settle_spawn(spawn, outcome))
        if spawn.error is not None:
            raise spawn.error
        if outcome.status == "interrupted":
            raise Held(session_id)
        return outcome.output

    async def _warn(self, request: TurnRequest) -> str:
        """Return a note about the tool calls of the attempt before: what they did may have taken effect."""
        if request.attempt == 1:
            return ""
        earlier = name_session(self._run_id, request.key, request.attempt - 1)
        try:
            record = await self._store.get(earlier)
        except SessionNotFound:
            return ""
        said = await self._store.read(earlier, record.fork_at or 0)
        calls = [
            redact_text(call_line(call))[:LONGEST_CALL] for message in said for call in message.get("tool_calls") or ()
        ]
        if not calls:
            return ""
        listed = "\n".join(f"- {each}" for each in calls[-MOST_CALLS:])
        return f"\n\nAn earlier attempt has failed after these tool calls, which may have taken effect:\n{listed}"

    async def _read_source(self, session_id: str) -> tuple[SessionRecord, Transcript]:
        """Return a stored session and its history, which many tasks may fork: it is read once."""
        known = self._sources.pop(session_id, None)
        if known is None:
            record = await self._store.get(session_id)
            known = record, stored_transcript(self._store, record)
        self._sources[session_id] = known
        if len(self._sources) > MOST_SOURCES:
            del self._sources[next(iter(self._sources))]
        return known

    def _make_tree(self, request: TurnRequest) -> Tree:
        """Return the tree of the run, with the budget of the task for all its attempts."""
        tree, limits = Tree.of(self._parent), Limits.of(request.task.budget)
        if limits is None:
            return tree
        account = f"task:{self._run_id}:{request.key}"
        own = Budget(limits, "task", f"budget of the task '{request.task.id}'", Account(account))
        return replace(tree, budgets=[*tree.budgets, own], accounts=(*tree.accounts, account))


def name_session(run_id: str, key: str, attempt: int) -> str:
    """Return the id of the session of an attempt: always the same for the same attempt of a run."""
    whole = f"{run_id}-{key}-{attempt}"
    name = re.sub(r"[^A-Za-z0-9_-]", "-", whole)
    if len(name) <= LONGEST_ID and name == whole:
        return name
    return f"{name[:LONGEST_ID]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def _describe_problems(problems: list[str], shape: Shape) -> str:
    listed = "\n".join(f"- {each}" for each in problems)
    wanted = f"Answer again, with JSON alone. The schema:\n{shape.describe()}"
    return f"Your answer does not fit its schema:\n{listed}\n{wanted}"
