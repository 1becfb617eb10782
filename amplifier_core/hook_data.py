"""Define the arguments of the moment hooks: a request before, a result after."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from .session import AmplifierSession


@frozen
class ForkRequest:
    """A fork that is about to be made. `at` counts the messages to share; 0 shares none."""

    source_id: str
    session_id: str
    at: int


@frozen
class ForkResult:
    """A finished fork. `at` counts the shared messages."""

    source_id: str
    session_id: str
    at: int


@frozen
class SpawnRequest:
    """A session that another one is about to make.

    `config` is its complete mount plan and `depth` the number of its ancestors. `siblings` counts the running children
    of its parent. `relatives` counts the sessions made so far below the session at the top; `limits` is the section
    `spawn` in the bundle of that session. Everything here is plain data: a runner may carry it to another process.
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


@frozen
class SpawnOutcome:
    """How a spawned session ended.

    `status` is completed, failed or cancelled; interrupted, while a tool call of it waits for approval. `turn_count` is
    the number of turns that it has executed: also those before it was resumed, none of the history that it inherited.
    """

    session_id: str
    parent_id: str
    status: str
    output: str
    turn_count: int
    duration: float
    """Seconds."""
    error: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    """The usage of its model calls: the known numbers by name, as in `llm:response`."""


@frozen
class RunResult:
    """What came of running a spawned session: its final text, the usage of its model calls, and its failure.

    `turns` counts those of this run, none before it was resumed; `usage` is as in `SpawnOutcome`. A session made by its
    `SessionBuilder` is counted by that, and its turns and usage here are not looked at. A runner raises the failure of
    such a session; elsewhere it may return it in `error`.
    """

    text: str
    turns: int = 1
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: BaseException | None = None


class SessionBuilder(Protocol):
    """Makes the session of a `SpawnRequest` in this process: initialised on entering, cleaned up on leaving."""

    def __call__(self, request: SpawnRequest) -> AbstractAsyncContextManager[AmplifierSession]: ...


class Runner(Protocol):
    """Executes a spawned session: in this process, in another one, or elsewhere."""

    async def run(self, request: SpawnRequest, build: SessionBuilder) -> RunResult | str:
        """Run the instruction in the request's session and return what came of it; a text alone is its final text.

        A runner in this process enters `build(request)`; any other makes the session in its own place. Cancelled, it
        ends the session before it ends itself.
        """
        ...

    async def stop(self, session_id: str) -> bool:
        """Ask a session to end when its running tools have finished; return whether this runner runs it."""
        ...
