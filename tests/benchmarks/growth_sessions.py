"""Sessions as they become more, have more tools, and stand deeper below each other: cost by number."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_context_simple import mount as mount_context
from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader
from amplifier_foundation import Bundle, PreparedBundle, spawn_bundle
from amplifier_loop_basic import mount as mount_loop
from amplifier_provider_playbook import mount as mount_provider

from .measure import FLAT, LINEAR, awaited, curve, in_turns
from .scripts.instant import PROMPT, Adder, InstantProvider, ResolvedLoader, mount_adder
from .sessions import PLAN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Row

SESSIONS = (10, 100, 1_000, 10_000)
"""Sessions that live in one process."""
TOOLS = (1, 8, 63, 500)
"""Tools of a bundle."""
DEPTHS = (1, 2, 4, 8)
"""Sessions above a spawned one."""
TURNS = 200
"""Turns of a sample, each in another session as long as there are so many."""

HELLO = "hello"


async def memory() -> AsyncIterator[Row]:
    """Measure what a session holds that has taken a turn: the same, however many there are.

    The allocator is asked: a few sessions are less than a page of the system's memory.
    """
    loader, points = ModuleLoader(), []
    async with _living(loader, 10):  # what all of them share is there before
        gc.collect()
        tracemalloc.start()
        try:
            for number in SESSIONS:
                before, _ = tracemalloc.get_traced_memory()
                async with _living(loader, number):
                    points.append((number, (tracemalloc.get_traced_memory()[0] - before) / number))
        finally:
            tracemalloc.stop()
    yield curve("memory of a session, by sessions that live", points, at_most=FLAT, unit="B")


async def turns() -> AsyncIterator[Row]:
    """Measure a turn of one session after the other: the same, however many there are."""
    async with _living(ModuleLoader(), SESSIONS[-1]) as sessions:
        samples = [partial(_take_turns, sessions[:number]) for number in SESSIONS]
        points = list(zip(SESSIONS, await in_turns(*samples, rounds=15), strict=True))
    yield curve("a turn in one of so many sessions, one after the other", points, at_most=FLAT)


async def tools() -> AsyncIterator[Row]:
    """Measure a session by its tools.

    To mount it grows with them. So does a turn, a little: its requests carry a description of each, which the loop
    compares with the tool's own at each turn, since a tool may change it.
    """
    names = [f"tool-{number}" for number in range(TOOLS[-1])]
    mounts = {"loop-basic": mount_loop, "context-simple": mount_context, "provider-playbook": mount_provider}
    loader = ResolvedLoader({**mounts, **{name: partial(_mount_tool, name) for name in names}})
    plans = [{**PLAN, "tools": [{"module": name} for name in names[:number]]} for number in TOOLS]
    lives = await in_turns(*(awaited(partial(_live, plan, loader), 20) for plan in plans), rounds=11)
    yield curve("session made, initialised, cleaned up, by tools", list(zip(TOOLS, lives, strict=True)), LINEAR)
    bundles = [_bundle(tools=plan["tools"]) for plan in plans]
    prepared = await in_turns(*(awaited(partial(_prepare, each), 20) for each in bundles), rounds=11)
    yield curve("bundle prepared, by tools", list(zip(TOOLS, prepared, strict=True)), LINEAR)
    sessions = [await _with_tools(number) for number in TOOLS]
    taken = await in_turns(*(partial(_take_turns, [each], PROMPT) for each in sessions), rounds=11)
    yield curve("a turn with one tool call, by tools", list(zip(TOOLS, taken, strict=True)), LINEAR)
    for session in sessions:
        await session.cleanup()


async def depths() -> AsyncIterator[Row]:
    """Measure a spawn by the number of sessions above it: each level costs the same."""
    chain = [await _bundle().create_session()]
    for _ in range(DEPTHS[-1]):
        above = chain[-1]
        chain.append(await _bundle().create_session(parent_id=above.session_id, parent=above))
    child = _bundle()
    samples = [awaited(partial(spawn_bundle, child, HELLO, chain[depth - 1]), 30) for depth in DEPTHS]
    points = list(zip(DEPTHS, await in_turns(*samples, rounds=15), strict=True))
    yield curve("a session spawned, by sessions above it", points, at_most=FLAT)
    for session in reversed(chain):
        await session.cleanup()


PARTS = (memory, turns, tools, depths)


def _bundle(**sections: Any) -> PreparedBundle:
    return PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "bench"}, **PLAN, **sections}))


@asynccontextmanager
async def _living(loader: ModuleLoader, number: int) -> AsyncIterator[list[AmplifierSession]]:
    """Give so many sessions that have taken a turn."""
    sessions = [AmplifierSession(PLAN, loader, f"session-{each}") for each in range(number)]
    for session in sessions:
        await session.execute(HELLO)
    yield sessions
    for session in sessions:
        await session.cleanup()


async def _take_turns(sessions: list[AmplifierSession], prompt: str = HELLO) -> float:
    """Return the seconds of a first turn: what was said is forgotten before each."""
    seconds = 0.0
    for number in range(TURNS):
        session = sessions[number * len(sessions) // TURNS if len(sessions) > TURNS else number % len(sessions)]
        await session.coordinator.get("context").clear()
        start = perf_counter()
        await session.execute(prompt)
        seconds += perf_counter() - start
    return seconds / TURNS


async def _live(plan: dict[str, Any], loader: ModuleLoader) -> None:
    session = AmplifierSession(plan, loader, "bench")
    await session.initialize()
    await session.cleanup()


async def _prepare(prepared: PreparedBundle) -> None:
    PreparedBundle.of(prepared.bundle)


async def _mount_tool(name: str, coordinator: Any, config: dict[str, Any]) -> None:
    await coordinator.mount("tools", Adder(), name=name)


async def _with_tools(number: int) -> AmplifierSession:
    """Return a session of a model that calls the one tool it knows, with so many of them."""
    session = await _bundle().create_session()
    session.coordinator.get("providers").clear()
    await session.coordinator.mount("providers", InstantProvider())
    await mount_adder(session.coordinator, {})
    for other in range(1, number):
        await session.coordinator.mount("tools", Adder(), name=f"tool-{other}")
    return session
