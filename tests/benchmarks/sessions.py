"""A session made and ended, a turn with one tool call, and forks in memory."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_context_simple import mount as mount_context
from amplifier_core import AmplifierSession, ModuleCoordinator
from amplifier_core.loader import ModuleLoader
from amplifier_core.message_models import ChatRequest
from amplifier_core.transcript import Transcript
from amplifier_loop_basic import mount as mount_loop
from amplifier_provider_playbook import mount as mount_provider

from .measure import Row, awaited, called, curve, in_turns
from .scripts.instant import Adder, InstantProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .measure import Sample

FORK_AT_MOST = 60.0  # goal: times the least object
TURN_AT_MOST = 3.0  # goal: times the least loop with the same provider and tool, nothing stored

PLAYBOOK = {"rules": [{"when": {"user": "hello"}, "say": "Hello."}], "otherwise": {"say": "What?"}}
PLAN: dict[str, Any] = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": PLAYBOOK}],
}
HISTORIES = (10, 1_000, 10_000, 100_000)
"""Messages."""


# life


async def lives() -> AsyncIterator[Row]:
    """Measure a session made, initialised and cleaned up. `peers` judges it: faster mounts make no session slower."""
    loader = ModuleLoader()

    async def ours() -> None:
        session = AmplifierSession(PLAN, loader, "bench")
        await session.initialize()
        await session.cleanup()

    async def by_hand() -> None:
        coordinator = ModuleCoordinator(config=PLAN, session_id="bench")
        await mount_loop(coordinator, {})
        await mount_context(coordinator, {})
        await mount_provider(coordinator, PLAYBOOK)
        await coordinator.cleanup()

    whole, mounts = await in_turns(awaited(ours, 300), awaited(by_hand, 300), rounds=15)
    yield Row("session made, initialised, cleaned up / its mounts alone", whole, mounts)


# forks


class _Shared:
    """The least that a fork in constant time can be: a source and a length."""

    __slots__ = ("at", "source")

    def __init__(self, source: list[Any], at: int) -> None:
        self.source, self.at = source, at


async def forks() -> AsyncIterator[Row]:
    """Measure forks of histories of four lengths."""
    sessions = [await _session_with(messages) for messages in HISTORIES]
    source: list[Any] = []

    async def by_hand() -> None:
        _Shared(source, len(source))

    *alone, limit = await in_turns(*map(_forking, sessions), awaited(by_hand, 1_000), rounds=31)
    what = f"session.fork, {HISTORIES[-1]:,} messages / an object with two attributes"
    yield Row(what, alone[-1], limit, at_most_ratio=FORK_AT_MOST)
    yield curve("session.fork, by messages", list(zip(HISTORIES, alone, strict=True)))
    mounted = await in_turns(*(_forking(session, initialize=True) for session in sessions), rounds=31)
    yield curve("session.fork and its mounts, by messages", list(zip(HISTORIES, mounted, strict=True)))
    for session in sessions:
        yield await _beside_deepcopy(session)
        await session.cleanup()


async def _beside_deepcopy(session: AmplifierSession) -> Row:
    messages = list(session.transcript)
    fork, copy = await in_turns(_forking(session), called(partial(deepcopy, messages), 1), rounds=5)
    return Row(f"session.fork, {len(messages):,} messages / a deepcopy of them", fork, copy, at_most_ratio=1)


async def _session_with(messages: int) -> AmplifierSession:
    history = Transcript(
        {"role": "assistant" if number % 2 else "user", "content": f"message {number}"} for number in range(messages)
    )
    session = AmplifierSession(PLAN, ModuleLoader(), "bench", transcript=history)
    await session.initialize()
    return session


def _forking(session: AmplifierSession, *, initialize: bool = False) -> Sample:
    async def sample(forks: int = 100) -> float:
        start = perf_counter()
        for _ in range(forks):
            await session.fork(initialize=initialize)
        seconds = (perf_counter() - start) / forks
        for child in list(session.children):
            await child.cleanup()
        return seconds

    return sample


# turns


async def turns() -> AsyncIterator[Row]:
    """Measure a turn with one tool call."""
    session = AmplifierSession({"session": PLAN["session"]}, ModuleLoader(), "bench")
    await session.initialize()
    provider, tool = InstantProvider(), Adder()
    await session.coordinator.mount("providers", provider)
    await session.coordinator.mount("tools", tool)
    context = session.coordinator.get("context")
    ours, limit = await in_turns(
        _turns(lambda: session.execute("one and two"), forget=context.clear),
        awaited(partial(_turn_by_hand, provider, tool), 100),
        rounds=15,
    )
    await session.cleanup()
    yield Row("a turn with one tool call / a loop by hand", ours, limit, at_most_ratio=TURN_AT_MOST)


def _turns(turn: Callable[[], Awaitable[str]], forget: Callable[[], Awaitable[None]]) -> Sample:
    """Return a sample of first turns: what was said is forgotten before each, outside the time that counts."""

    async def sample(turns: int = 50) -> float:
        seconds = 0.0
        for _ in range(turns):
            await forget()
            start = perf_counter()
            await turn()
            seconds += perf_counter() - start
        return seconds / turns

    return sample


async def _turn_by_hand(provider: InstantProvider, tool: Adder) -> str:
    """Ask, call, ask: validated requests, a dict of tools and a list of dicts."""
    tools = {tool.name: tool}
    spec = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "one and two"}]
    while True:
        response = await provider.complete(ChatRequest.model_validate({"messages": messages, "tools": [spec]}))
        calls = provider.parse_tool_calls(response)
        blocks = [block.model_dump(exclude_none=True) for block in response.content]
        listed = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
        messages.append({"role": "assistant", "content": blocks or "", "tool_calls": listed})
        if not calls:
            return "".join(block["text"] for block in blocks)
        for call in calls:
            result = await tools[call.name].execute(call.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result.get_serialized_output()})


PARTS = (lives, turns, forks)
