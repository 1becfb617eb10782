"""Take the turns of a workflow's agents: each attempt at a task has a session of its own, below that of the run."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ..spawning.child import prepare_spawn, share_stored
from ..spawning.life import run_spawn, settle_spawn
from .engine import TurnResult
from .errors import OUTPUT_INVALID, FlowError
from .formats import wish
from .outputs import Shape

if TYPE_CHECKING:
    from amplifier_core.storage import SessionStore

    from ..spawning.agents import AgentSpawner
    from .engine import TurnRequest

LONGEST_ID = 100
"""Characters of the id of a task's session, before it is shortened."""


class AgentTurns:
    """Takes turns with the agents of a bundle; `run_id` is the session above theirs."""

    def __init__(self, agents: AgentSpawner, store: SessionStore, run_id: str) -> None:
        self._agents = agents
        self._store = store
        self._run_id = run_id

    async def take(self, request: TurnRequest) -> TurnResult:
        """Return the answer to a prompt; an attempt that was cut goes on, and one that is finished is not made again.

        With a schema, the service is asked to enforce it, and an answer that does not fit is corrected by further turns
        of the same session. Raises `FlowError` and the errors of spawned sessions.
        """
        session_id = name_session(self._run_id, request.key, request.attempt)
        text = await self._say(request, session_id, request.prompt)
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
        spawn.capabilities = {**spawn.capabilities, **wish(request.task.output_schema)}
        if request.source is not None:
            share_stored(spawn, self._store, await self._store.get(request.source))
        await prepare_spawn(spawn, resume=True, anew=anew)
        outcome = await run_spawn(spawn, request.task.timeout)
        await settle_spawn(spawn, outcome)
        if spawn.error is not None:
            raise spawn.error
        return outcome.output


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
