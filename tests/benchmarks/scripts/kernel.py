"""What a kernel costs, whichever is installed as `amplifier_core`: events, sessions, turns, memory."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from time import perf_counter
from typing import Any

from answering import LASTING, answer, resident, seconds_of
from instant import ANSWER, PROMPT, ResolvedLoader, mount_adder, mount_echo, mount_messages, mount_provider

from amplifier_context_simple import mount as mount_context
from amplifier_core import AmplifierSession, HookRegistry
from amplifier_loop_basic import mount as mount_loop

IDLE: dict[str, Any] = {
    "session": {"orchestrator": "loop-echo", "context": "context-messages"},
    "providers": [{"module": "provider-instant"}],
}
TALKING: dict[str, Any] = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-instant"}],
    "tools": [{"module": "tool-add"}],
}
LOADER = ResolvedLoader(
    {
        "loop-echo": mount_echo,
        "context-messages": mount_messages,
        "loop-basic": mount_loop,
        "context-simple": mount_context,
        "provider-instant": mount_provider,
        "tool-add": mount_adder,
    }
)
TAKES_LOADER = hasattr(AmplifierSession, "fork")
"""The published kernel takes its loader from the coordinator, and warns of one that it is given."""

SESSIONS = 1_000
"""Idle sessions that live at the same time."""
EVENT = "tool:pre"
DATA = {"tool_name": "read_file", "tool_input": {"file_path": "a.py"}}


async def started(plan: dict[str, Any], session_id: str = "bench") -> AmplifierSession:
    session = AmplifierSession(plan, session_id=session_id, **({"loader": LOADER} if TAKES_LOADER else {}))
    session.coordinator.loader = LOADER
    await session.initialize()
    return session


async def emit(handlers: int) -> float:
    """Return the seconds of one `hooks.emit`."""
    hooks = HookRegistry()
    hooks.set_default_fields(session_id="bench", parent_id=None)
    for number in range(handlers):
        hooks.register(EVENT, handle, name=f"handler-{number}")
    return await seconds_of(partial(hooks.emit, EVENT, DATA))


async def handle(event: str, data: dict[str, Any]) -> None:
    return None


async def life() -> float:
    """Return the seconds of a session made, initialised and cleaned up."""

    async def live() -> None:
        session = await started(IDLE)
        await session.cleanup()

    return await seconds_of(live)


async def turn() -> float:
    """Return the seconds of one turn with one tool call, the first of its session."""
    session = await started(TALKING)
    context = session.coordinator.get("context")
    turns, seconds = 0, 0.0
    while seconds < LASTING:
        await context.clear()
        start = perf_counter()
        said = await session.execute(PROMPT)
        seconds += perf_counter() - start
        turns += 1
        assert said == ANSWER
    await session.cleanup()
    return seconds / turns


async def memory() -> float:
    """Return the bytes of one idle session, by what the process has grown: allocators, threads and all."""
    sessions = await idle(100)
    gc.collect()
    before = resident()
    sessions += await idle(SESSIONS)
    gc.collect()
    grown = resident() - before
    for session in sessions:
        await session.cleanup()
    return grown / SESSIONS


async def idle(number: int) -> list[AmplifierSession]:
    sessions = []
    for index in range(number):
        sessions.append(await started(IDLE, f"session-{index}"))
        await asyncio.sleep(0)  # the loop turns between them, as it does in a program
    return sessions


if __name__ == "__main__":
    emits = {f"emit_{handlers}": partial(emit, handlers) for handlers in (0, 1, 10)}
    answer(**emits, life=life, turn=turn, memory=memory)
