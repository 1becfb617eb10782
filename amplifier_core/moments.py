"""What the moment hooks are given: a request before, a result after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from .session import AmplifierSession


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A fork about to be made. `at` counts the messages it will share; 0 shares none."""

    source_id: str
    session_id: str
    at: int


@dataclass(frozen=True, slots=True)
class ForkResult:
    """A fork that was made."""

    source_id: str
    session_id: str
    at: int


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A session about to be made by another one.

    `config` is its complete mount plan and `depth` the number of its ancestors. `siblings` counts the children of its
    parent that run now, `relatives` the sessions made so far below the one at the top, whose bundle's section `spawn`
    are the `limits`. Everything here is plain data, so that a runner may carry it to another process.
    """

    session_id: str
    parent_id: str
    bundle: str
    instruction: str
    config: Mapping[str, Any]
    working_dir: str
    depth: int = 1
    siblings: int = 0
    relatives: int = 0
    limits: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpawnOutcome:
    """How a spawned session ended: `status` is completed, failed or cancelled."""

    session_id: str
    parent_id: str
    status: str
    output: str
    turn_count: int
    duration: float
    """Seconds."""
    error: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    """What its model calls took: numbers by name, as `llm:response` tells them; what is not known is left out."""


class SessionBuilder(Protocol):
    """Makes the session of a `SpawnRequest` in this process: initialised on entering, cleaned up on leaving."""

    def __call__(self, request: SpawnRequest) -> AbstractAsyncContextManager[AmplifierSession]: ...


class Runner(Protocol):
    """How a spawned session is executed: in this process, in another one, elsewhere."""

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> str:
        """Run the instruction in the request's session and return its final text.

        One that runs here enters `build(request)`; one that runs elsewhere makes the session there.
        """
        ...
