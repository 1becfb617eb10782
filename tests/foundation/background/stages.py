"""A running `up` whose model answers as a test lets it, and clients that follow its sessions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amplifier_foundation.background.following import follow_session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from pathlib import Path

    from amplifier_core.storage import DurableStore
    from amplifier_foundation.background.live_feed import LiveFeed
    from amplifier_foundation.background.up import Control

PATIENCE = 30
GATED = '''
import asyncio
from pathlib import Path

from amplifier_core import ChatResponse, ProviderInfo, TextBlock
from amplifier_core.message_models import ToolCall, ToolCallBlock


class Gated:
    """Says each piece of its answer when there is a file for it; delegates, or waits, first when it is asked to."""

    name = "gated"

    def __init__(self, emit, config):
        self.emit, self.folder, self.pieces = emit, Path(config["folder"]), config["pieces"]

    def get_info(self): return ProviderInfo(id="gated", display_name="Gated")
    async def list_models(self): return []
    def parse_tool_calls(self, response): return response.tool_calls or []

    async def complete(self, request, **kwargs):
        asked = str(request.messages[-1].content)
        call = {"id": "c1", "name": "delegate", "input": {"agent": "helper", "instruction": "Help."}}
        if "wait" in asked:
            call = {"id": "c1", "name": "wait", "input": {}}
        if "delegate" in asked or "wait" in asked:
            return ChatResponse(
                content=[ToolCallBlock(**call)],
                tool_calls=[ToolCall(id="c1", name=call["name"], arguments=call["input"])],
            )
        await self.emit("llm:stream_block_start", {"block_index": 0, "block_type": "text"})
        for number, piece in enumerate(self.pieces):
            while not (self.folder / f"go-{number}").exists():
                await asyncio.sleep(0.005)
            await self.emit("llm:stream_block_delta", {"block_index": 0, "text": piece})
        return ChatResponse(content=[TextBlock(text="".join(self.pieces))])


async def mount(coordinator, config):
    waits = config["waits"] and coordinator.session_id.startswith("queue")
    while waits and not (Path(config["folder"]) / "mounted").exists():
        await asyncio.sleep(0.005)
    await coordinator.mount("providers", Gated(coordinator.hooks.emit, config))
'''
"""A model that streams its answer as a test lets it, in any process."""
WAIT = """
import asyncio
from pathlib import Path


class Wait:
    name, description, input_schema = "wait", "Wait.", {"type": "object", "properties": {}}

    def __init__(self, folder):
        self.folder = folder

    async def execute(self, input):
        (self.folder / "waits").touch()
        while not (self.folder / "waited").exists():
            await asyncio.sleep(0.005)
        return {"said": "done"}


async def mount(coordinator, config):
    await coordinator.mount("tools", Wait(Path(config["folder"])))
"""
"""A tool that ends when there is a file `waited`."""
PIECES = ["Hello ", "wor", "ld."]


class Stage:
    """A running `up` with one background session that is woken by hand."""

    def __init__(self, folder: Path, store: DurableStore, control: Control) -> None:
        self.folder, self.store, self.control = folder, store, control
        self.project = str(folder.resolve())

    @property
    def feed(self) -> LiveFeed:
        """The feed of the process."""
        assert self.control.feed is not None
        return self.control.feed

    async def fire(self, prompt: str = "Begin.", *, is_made: bool = True) -> str:
        """Wake the background session, and return the id of its session when that is made, or is being made."""
        [up] = self.control.running
        assert await up.manager.fire("queue", {"prompt": prompt})
        async with asyncio.timeout(PATIENCE):
            while True:
                running = [each for row in up.manager.get_status().values() for each in row["running"]]
                if running and (not is_made or self.feed.runs(running[0])):
                    return str(running[0])
                await asyncio.sleep(0.005)

    async def find_child(self, session_id: str) -> str:
        """Return the id of the session's child, once it runs."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for record in await self.store.sessions(parent_id=session_id):
                    if self.feed.runs(record.session_id):
                        return record.session_id
                await asyncio.sleep(0.005)

    def let(self, *numbers: int) -> None:
        """Let the model say these pieces."""
        for number in numbers:
            (self.folder / f"go-{number}").touch()

    def follow(self, session_id: str) -> AsyncGenerator[Mapping[str, Any]]:
        """Follow a session as another process does."""
        return follow_session(session_id, self.project)


async def until(facts: AsyncIterator[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """Return the next facts up to one of a kind."""
    found: list[Mapping[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        async for fact in facts:
            found.append(fact)
            if fact["type"] == kind:
                return found
    raise AssertionError(f"no {kind} in {found}")


def said(facts: list[Mapping[str, Any]]) -> str:
    """Return the streamed text."""
    return "".join(fact["text"] for fact in facts if fact.get("partial"))
