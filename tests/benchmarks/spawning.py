"""A session made by a session: beside its modules mounted by hand, from histories short and long, and by thousands."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

from amplifier_core import AmplifierSession
from amplifier_foundation import Bundle, PreparedBundle, spawn_bundle
from amplifier_foundation.spawning.inheritance import Scope

from .measure import Row, awaited, in_turns, timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

OVERHEAD_AT_MOST = 150e-6  # goal: seconds that spawning adds
GROWTH_AT_MOST = 1.5  # goal: times the spawn from a short history
CONCURRENT, CONCURRENT_AT_MOST = 100, 0.1  # goal: seconds for all of them
CHILDREN, MEMORY_AT_MOST = 10_000, 5 * 1024 * 1024  # goal: bytes
SHORT, LONG = 10, 100_000
"""Messages of a history."""

PROVIDERS = [{"module": "provider-playbook", "config": {"otherwise": {"say": "Hello."}}}]
STILL = """
class Still:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        return "done"

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Still())
"""
"""A loop that reads nothing of the history: what the child itself does with it is not measured."""


async def rows() -> AsyncIterator[Row]:
    """Measure all of them."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "still.py").write_text(STILL, encoding="utf-8")
        parent = await _bundle("parent", folder, providers=PROVIDERS).create_session()
        child = _bundle("child", folder)
        async for row in _overhead(parent, child):
            yield row
        still = _bundle("still", folder, session={"orchestrator": {"module": "loop-still", "source": "./still.py"}})
        async for row in _growth(still, folder):
            yield row
        at_once = awaited(partial(_concurrent, parent, child), 1)
        [taken] = await in_turns(at_once, rounds=11)
        yield timed("100 sessions spawned at once", taken, at_most=CONCURRENT_AT_MOST)
        async for row in _left_behind(parent, child):
            yield row
        await parent.cleanup()


def _bundle(name: str, folder: str, **sections: Any) -> PreparedBundle:
    return PreparedBundle.of(Bundle.from_dict({"bundle": {"name": name}, **sections}, Path(folder)))


async def _overhead(parent: AmplifierSession, child: PreparedBundle) -> AsyncIterator[Row]:
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "providers": PROVIDERS}

    async def by_hand() -> None:
        session = AmplifierSession(plan, loader=parent.loader.another(), session_id="bench")
        await session.initialize()
        await session.execute("hello")
        await session.cleanup()

    ours, limit = await in_turns(
        awaited(partial(spawn_bundle, child, "hello", parent), 50), awaited(by_hand, 50), rounds=61
    )
    yield Row("a session spawned, its turn taken / its modules mounted by hand", ours, limit)
    yield timed("  what spawning adds", max(0.0, ours - limit), at_most=OVERHEAD_AT_MOST)


async def _growth(still: PreparedBundle, folder: str) -> AsyncIterator[Row]:
    parents = [await _with_history(messages, folder) for messages in (SHORT, LONG)]
    for scope in get_args(Scope):
        start = perf_counter()
        await _spawn(still, parents[-1], scope)
        first = perf_counter() - start
        samples: list[Sample] = [awaited(partial(_spawn, still, each, scope), 20) for each in parents]
        short, long = await in_turns(*samples, rounds=21)
        what = f"spawned with all of {LONG:,} / {SHORT} messages, {scope}"
        yield Row(what, long, short, at_most_ratio=GROWTH_AT_MOST)
        yield Row("  the first time, when each message is looked at", first)
    for parent in parents:
        await parent.cleanup()


async def _with_history(messages: int, folder: str) -> AmplifierSession:
    session = await _bundle("parent", folder, providers=PROVIDERS).create_session()
    session.transcript.extend(
        {"role": "assistant" if number % 2 else "user", "content": f"message {number}"} for number in range(messages)
    )
    return session


async def _spawn(child: PreparedBundle, parent: AmplifierSession, scope: Scope) -> None:
    await spawn_bundle(child, "hello", parent, context_depth="all", context_scope=scope)


async def _concurrent(parent: AmplifierSession, child: PreparedBundle) -> None:
    await asyncio.gather(*(spawn_bundle(child, "hello", parent) for _ in range(CONCURRENT)))


async def _left_behind(parent: AmplifierSession, child: PreparedBundle) -> AsyncIterator[Row]:
    for _ in range(5):
        await _concurrent(parent, child)
    gc.collect()
    before, memory = _traces(parent), _memory()
    for _ in range(CHILDREN):
        await spawn_bundle(child, "hello", parent)
    gc.collect()
    yield Row("memory after 10,000 children", max(0, _memory() - memory), at_most=MEMORY_AT_MOST, unit="bytes")
    left = abs(_traces(parent) - before)
    yield Row("  tasks, handlers, contributors, folders on the path left", left, at_most=0, unit="of them")


def _traces(parent: AmplifierSession) -> int:
    coordinator = parent.coordinator
    handlers = sum(map(len, coordinator.hooks.list_handlers().values()))
    contributors = sum(map(len, coordinator.channels.values()))
    return len(asyncio.all_tasks()) + handlers + contributors + len(sys.path)


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
