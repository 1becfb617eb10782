"""Small modules in files, a parent that sees its children, and a session that delegates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import EventRouter, PreparedBundle
from amplifier_foundation.spawning.agents import AgentSpawner
from amplifier_foundation.spawning.family import Family

MakeBundle = Callable[..., PreparedBundle]

MODULES = {
    # Answers with what it was told, and costs a cent.
    "provider-echo": """
from decimal import Decimal
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, Usage

class Echo:
    name = "echo"
    def __init__(self, config):
        self.config, self.priority = config, config.get("priority", 100)
    def get_info(self):
        return ProviderInfo(id="echo", display_name="Echo")
    async def list_models(self):
        return ["small-1", "small-2", "large-1"]
    def parse_tool_calls(self, response):
        return []
    async def complete(self, request, **kwargs):
        said = [f"{m.role}:{m.content if isinstance(m.content, str) else text(m.content)}" for m in request.messages]
        tools = ",".join(sorted(tool.name for tool in request.tools or []))
        told = "|".join(said) + (f" [{tools}]" if tools else "") + self.config.get("default_model", "")
        usage = Usage(input_tokens=3, output_tokens=1, total_tokens=4, cost_usd=Decimal("0.01"))
        return ChatResponse(content=[TextBlock(text=told)], usage=usage)

def text(blocks):
    return "".join(getattr(block, "text", "") or "" for block in blocks)

async def mount(coordinator, config):
    await coordinator.mount("providers", Echo(config))
""",
    # Tells what it found when it was mounted.
    "tool-probe": """
from amplifier_core import ToolResult

class Probe:
    name, description, input_schema = "probe", "Tells.", {"type": "object", "properties": {}}
    def __init__(self, told):
        self.told = told
    async def execute(self, input):
        return ToolResult(output=self.told)

async def mount(coordinator, config):
    find = coordinator.get_capability
    told = f"{find('session.working_dir')} {find('session.spawn') is not None} {config.get('mark', '')}"
    await coordinator.mount("tools", Probe(told), name=config.get("name", "probe"))
""",
    # Waits until it is cancelled.
    "tool-waiting": """
import asyncio

class Waiting:
    name, description, input_schema = "wait", "Waits.", {"type": "object", "properties": {}}
    async def execute(self, input):
        await asyncio.Event().wait()

async def mount(coordinator, config):
    await coordinator.mount("tools", Waiting())
""",
    # Fails at the step that its config names.
    "tool-faulty": """
async def mount(coordinator, config):
    step = config["at"]
    class Faulty:
        name, description, input_schema = "faulty", "Fails.", {"type": "object", "properties": {}}
        async def execute(self, input):
            raise OSError("broken tool")
    async def fail(event, data):
        raise OSError(f"broken hook at {event}")
    def undo():
        raise OSError("broken cleanup")
    if step == "mount":
        raise OSError("broken mount")
    coordinator.hooks.register(step, fail)
    if step == "cleanup":
        coordinator.register_cleanup(undo)
    await coordinator.mount("tools", Faulty())

async def on_session_ready(coordinator):
    if coordinator.get("tools", "faulty") and coordinator.get_capability("session.depth") == 1:
        raise OSError("broken readiness")
""",
    "provider-faulty": """
class Faulty:
    name = "faulty"
    def get_info(self): return None
    async def list_models(self): return []
    def parse_tool_calls(self, response): return []
    async def complete(self, request, **kwargs):
        raise OSError("broken provider")

async def mount(coordinator, config):
    await coordinator.mount("providers", Faulty())
""",
    # Takes its turn without looking at anything: it fails, never ends, or says a word.
    "loop-own": """
import asyncio

class Loop:
    def __init__(self, config):
        self.config = config
    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        await context.add_message({"role": "user", "content": prompt})
        if self.config.get("fails"):
            raise OSError("broken loop")
        token = kwargs["coordinator"].cancellation
        while self.config.get("endless") and not (self.config["endless"] == "polite" and token.is_cancelled):
            await asyncio.sleep(0.001)
        await context.add_message({"role": "assistant", "content": "done"})
        return "done"

async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop(config))
""",
    # Keeps its messages for itself, and may fail where it is given the system prompt.
    "context-own": """
class Context:
    def __init__(self, config):
        self.config, self.messages = config, []
    async def set_system_prompt_factory(self, factory):
        if self.config.get("fails"):
            raise OSError("broken prompt")
    async def add_message(self, message):
        self.messages.append(message)
    async def get_messages(self):
        return list(self.messages)
    async def get_messages_for_request(self, token_budget=None, provider=None):
        return list(self.messages)
    async def set_messages(self, messages):
        self.messages = list(messages)
    async def clear(self):
        self.messages = []

async def mount(coordinator, config):
    await coordinator.mount("context", Context(config))
""",
    # Asks before each tool call.
    "hooks-asking": """
from amplifier_core import HookResult

async def ask(event, data):
    return HookResult(action="ask_user", approval_prompt=f"Run {data['tool_name']}?")

async def mount(coordinator, config):
    coordinator.hooks.register("tool:pre", ask)
""",
}


def entry(module: str, **config: Any) -> dict[str, Any]:
    """Return the entry of one of the modules above."""
    return {"module": module, "source": f"./{module}.py", "config": config}


class Words:
    """What tests write of bundles: entries of the modules above, and a provider that answers by rules."""

    entry = staticmethod(entry)

    @staticmethod
    def playbook(*rules: dict[str, Any], say: str = "You said: {prompt}", **config: Any) -> list[dict[str, Any]]:
        """Return a providers section."""
        return [{"module": "provider-playbook", "config": {"rules": [*rules], "otherwise": {"say": say}, **config}}]

    @staticmethod
    def calls(tool: str, **given: Any) -> list[dict[str, Any]]:
        """Return a providers section that calls a tool once, then says what came of it."""
        return Words.playbook(
            {"when": {"user": "."}, "call": {"tool": tool, "input": given}},
            {"when": {"tool": tool}, "say": "{result}"},
        )

    slow: ClassVar[list[dict[str, Any]]] = [
        {"module": "provider-playbook", "config": {"delay_ms": 60_000, "otherwise": {"say": "late"}}}
    ]


@pytest.fixture
def words(tmp_path: Path) -> type[Words]:
    """The words above, with the modules written beside the bundles."""
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    return Words


@dataclass
class Watched:
    """The children of a session: each as it is mounted, and what is done at an event of theirs."""

    children: list[AmplifierSession] = field(default_factory=list)
    at: dict[str, Callable[[], object]] = field(default_factory=dict)

    def __call__(self, session: AmplifierSession) -> None:
        self.children.append(session)
        for event, act in self.at.items():
            session.coordinator.hooks.register(event, partial(_act, act))


def _act(act: Callable[[], object], event: str, data: dict[str, Any]) -> None:
    act()


@pytest.fixture
def watched(parent: AmplifierSession) -> Watched:
    """The children of `parent`, and all below them."""
    seen = Watched()
    Family.of(parent).tree.observers = [seen]
    return seen


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Lets the loop run until something is so; the time limit is of a broken test alone."""

    async def wait(is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(120):
            while not is_so():
                await asyncio.sleep(0)

    return wait


@pytest.fixture
def router(store: DurableStore) -> EventRouter:
    """A router whose events are in the store."""
    return EventRouter(store)


Lead = Callable[..., Awaitable[AmplifierSession]]


@pytest.fixture
async def lead(
    make_bundle: MakeBundle, store: DurableStore, router: EventRouter, plugins: Plugins, tmp_path: Path, words: Any
) -> AsyncIterator[Lead]:
    """Makes a session `lead` that may make sessions of agents, as the command line does."""
    made: list[AmplifierSession] = []

    async def make(delegate: dict[str, Any] | None = None, **sections: Any) -> AmplifierSession:
        tools = [{"module": "tool-filesystem"}, {"module": "tool-delegate", "config": delegate or {}}]
        prepared = make_bundle("lead", **{"providers": [words.entry("provider-echo")], "tools": tools, **sections})
        agents = AgentSpawner(prepared, store, router, plugins)
        session = await prepared.create_session(
            session_id="lead",
            session_cwd=tmp_path,
            capabilities=agents.capabilities_of("lead"),
            plugins=plugins,
        )
        agents.take(session)
        made.append(session)
        return session

    yield make
    for session in made:
        await session.cleanup()
