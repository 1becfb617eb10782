"""A session made by a session: beside the published kernel, by its modules mounted by hand, and by thousands."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

from amplifier_core import AmplifierSession
from amplifier_foundation import Bundle, PreparedBundle, spawn_bundle
from amplifier_foundation.spawning.inheritance import Scope

from .environment import peers_python
from .measure import FLAT, Row, awaited, curve, in_turns
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .measure import Sample

PEER_AT_MOST = 1 / 60  # goal: times the peer
HAND_AT_MOST = 2.5  # goal: times the modules mounted by hand, with the same turn
AT_ONCE_AT_MOST = 1.25  # goal: times the same children one after the other
CONCURRENT = 100
CHILDREN = 10_000
LEFT_AT_MOST = 0.05  # goal: times a session that lives
HISTORIES = (10, 1_000, 10_000, 100_000)
"""Messages."""

PROVIDERS = [{"module": "provider-playbook", "config": {"otherwise": {"say": "Hello."}}}]
PLAN = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "providers": PROVIDERS}
STILL = """
class Still:
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        return "done"

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Still())
"""
"""A loop that reads nothing of the history: what the child itself does with it is not measured."""


async def overhead() -> AsyncIterator[Row]:
    """Measure a child from a prepared bundle, with the turn of a playbook, beside the published kernel and by hand.

    The published kernel makes a child of the same plan and modules, of folders that are known before, as its programs
    do: a session, its resolver of modules, the mounts with a loader of its own, the turn, the clean-up. Ours inherits
    its provider besides, counts usage, holds budgets and limits, and tells its parent.
    """
    peers = peers_python()
    async with AsyncExitStack() as stack, _family() as (_, parent, child):
        others = [await stack.enter_async_context(worker(peers, "spawn_kernel"))] if peers else []

        async def by_hand() -> None:
            session = AmplifierSession(PLAN, loader=parent.loader.another(), session_id="bench")
            await session.initialize()
            await session.execute("hello")
            await session.cleanup()

        ours, hand, *theirs = await in_turns(
            awaited(partial(spawn_bundle, child, "hello", parent), 100),
            awaited(by_hand, 100),
            *(each.sample("spawn") for each in others),
            rounds=15,
        )
    what, peer = "a session spawned from a prepared bundle, its turn taken", theirs[0] if theirs else None
    yield Row(f"{what} / amplifier-core", ours, peer, at_most_ratio=PEER_AT_MOST, note="not installed")
    yield Row(f"{what} / its modules mounted by hand", ours, hand, at_most_ratio=HAND_AT_MOST)


async def histories() -> AsyncIterator[Row]:
    """Measure a child that inherits all of its parent's history, by the length of that."""
    async with _family() as (folder, _, _):
        still = _bundle("still", folder, session={"orchestrator": {"module": "loop-still", "source": "./still.py"}})
        parents = [await _with_history(messages, folder) for messages in HISTORIES]
        for scope in get_args(Scope):
            start = perf_counter()
            await _spawn(still, parents[-1], scope)
            first = perf_counter() - start
            samples: list[Sample] = [awaited(partial(_spawn, still, each, scope), 20) for each in parents]
            points = list(zip(HISTORIES, await in_turns(*samples, rounds=15), strict=True))
            yield curve(f"spawned with the whole history ({scope}), by messages", points, at_most=FLAT)
            yield Row("  the first time, when each message is looked at", first)
        for parent in parents:
            await parent.cleanup()


async def together() -> AsyncIterator[Row]:
    """Measure many children at once."""
    async with _family() as (_, parent, child):
        at_once, in_a_row = await in_turns(
            awaited(partial(_concurrent, parent, child), 1),
            awaited(partial(_in_a_row, parent, child, CONCURRENT), 1),
            rounds=11,
        )
        what = f"{CONCURRENT} sessions spawned at once / one after the other"
        yield Row(what, at_once, in_a_row, at_most_ratio=AT_ONCE_AT_MOST)


async def left_behind() -> AsyncIterator[Row]:
    """Measure what ended children leave in the process, beside sessions that live."""
    async with _family() as (_, parent, child):
        await _in_a_row(parent, child, 500)
        gc.collect()
        before, memory = _traces(parent), _memory()
        await _in_a_row(parent, child, CHILDREN)
        gc.collect()
        left, traces = max(0, _memory() - memory), abs(_traces(parent) - before)
        living = await _living(child, CHILDREN // 10)
        what = f"memory after {CHILDREN:,} children / as many that live"
        yield Row(what, left, living * CHILDREN, at_most_ratio=LEFT_AT_MOST, unit="B")
        what = "  tasks, handlers, contributors, folders on the path left / children"
        yield Row(what, traces, CHILDREN, at_most_ratio=0, unit="")


PARTS = (overhead, histories, together, left_behind)


@asynccontextmanager
async def _family() -> AsyncIterator[tuple[str, AmplifierSession, PreparedBundle]]:
    """Give a folder, a session in it, and a bundle for its children."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        (Path(folder) / "still.py").write_text(STILL, encoding="utf-8")
        async with await _bundle("parent", folder, providers=PROVIDERS).create_session() as parent:
            yield folder, parent, _bundle("child", folder)


def _bundle(name: str, folder: str, **sections: Any) -> PreparedBundle:
    return PreparedBundle.of(Bundle.from_dict({"bundle": {"name": name}, **sections}, Path(folder)))


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


async def _in_a_row(parent: AmplifierSession, child: PreparedBundle, number: int) -> None:
    for _ in range(number):
        await spawn_bundle(child, "hello", parent)


async def _living(bundle: PreparedBundle, number: int) -> float:
    """Return the bytes of one session of `bundle` that has taken a turn and lives."""
    before, sessions = _memory(), []
    for _ in range(number):
        sessions.append(await bundle.create_session(config=PLAN))
        await sessions[-1].execute("hello")
    grown = _memory() - before
    for session in sessions:
        await session.cleanup()
    return grown / number


def _traces(parent: AmplifierSession) -> int:
    coordinator = parent.coordinator
    handlers = sum(map(len, coordinator.hooks.list_handlers().values()))
    contributors = sum(map(len, coordinator.channels.values()))
    return len(asyncio.all_tasks()) + handlers + contributors + len(sys.path)


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
