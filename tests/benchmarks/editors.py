"""Measure the agent for editors: how soon it answers, forks of a long history, and the stream of updates."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.storages import open_store

from .environment import peers_python
from .measure import Row, called, in_turns, timed
from .stores import PEERS
from .storing import LONG
from .worker import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

START = 12  # goal: times `python -c pass`
START_SECONDS = 0.3  # goal: seconds to the answer of `initialize`
FORK = 5e-3  # goal: seconds from a request to its answer, for a fork of 100,000 messages
MESSAGES = 100_000
UPDATES = 1_000  # goal: a second, without loss

BUNDLE = """---
bundle: {name: editor}
providers:
  - module: provider-streaming
    source: ./streaming.py
---
You answer.
"""
PROVIDER = """
from amplifier_core.models import ProviderInfo
from amplifier_core.message_models import ChatResponse, TextBlock
from amplifier_core.streaming import STREAM_BLOCK_DELTA, STREAM_BLOCK_END, STREAM_BLOCK_START

class Streaming:
    name, priority = "streaming", 1

    def __init__(self, coordinator):
        self.coordinator = coordinator

    def get_info(self):
        return ProviderInfo(id="streaming", display_name="Streaming")

    async def list_models(self):
        return []

    async def complete(self, request, **options):
        about = {"request_id": "1", "block_index": 0, "block_type": "text"}
        emit = self.coordinator.hooks.emit
        await emit(STREAM_BLOCK_START, about)
        for number in range(20_000):
            await emit(STREAM_BLOCK_DELTA, {**about, "sequence": number, "text": f"{number} "})
        await emit(STREAM_BLOCK_END, about)
        return ChatResponse(content=[TextBlock(text="".join(f"{number} " for number in range(20_000)))])

    def parse_tool_calls(self, response):
        return []

async def mount(coordinator, config):
    await coordinator.mount("providers", Streaming(coordinator))
"""


class _Editor:
    """Speaks with one agent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._count = 0
        self.updates = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request; updates before it are counted."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._count += 1
        asked = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if b'"method":"session/update"' in line:
                self.updates += b"agent_message_chunk" in line
                continue
            message = json.loads(line)
            if message.get("id") == self._count and "method" not in message:
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError("the agent has ended")


@contextmanager
def _editor(folder: Path) -> Iterator[_Editor]:
    environ = {**os.environ, "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1"}
    command = [sys.executable, "-m", "amplifier_foundation", "acp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environ) as process:
        yield _Editor(process)
        assert process.stdin is not None
        process.stdin.close()


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


async def _store_long(folder: Path) -> str:
    """Store a session of 100,000 messages, and return its id."""
    os.environ["AMPLIFIER_HOME"] = str(folder / "home")
    store = open_store(load_plugins(), None)
    name = "long-history"
    await store.create(SessionRecord(name, name="long", project=os.path.realpath(folder), status="idle"))
    pair = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]
    for start in range(0, MESSAGES, 10_000):
        await store.append(name, pair * 5_000, at=start)
    await store.update(name, turn_count=MESSAGES // 2)
    await store.close()
    return name


async def _peers(ours: float) -> AsyncIterator[Row]:
    """Put a fork of 10,000 messages in the stores of the peers beside it: they copy them."""
    python = peers_python()
    async with AsyncExitStack() as opened:
        for name in PEERS:
            figure = None
            if python is not None:
                script = f"store_{name.replace('-', '_')}"
                figure = await (await opened.enter_async_context(worker(python, script))).measure(f"fork_{LONG}")
            yield Row(f"  beside a fork of {LONG:,} in the store of {name}", ours, figure, note="not installed")


async def rows() -> AsyncIterator[Row]:
    """Start agents beside Python, then fork a long session, and stream."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name:
        folder = Path(name)
        (folder / "bundle.md").write_text(BUNDLE)
        (folder / "streaming.py").write_text(PROVIDER)

        def initialize() -> None:
            began = perf_counter()
            with _editor(folder) as editor:
                editor.ask("initialize", protocolVersion=1)
                taken.append(perf_counter() - began)

        taken: list[float] = []
        python, _ = await in_turns(called(_start_python, 2), called(initialize, 1), rounds=9)
        yield Row("initialize answered, from the start / python -c pass", median(taken), python, at_most_ratio=START)
        yield timed("  in seconds", median(taken), at_most=START_SECONDS)
        long = await asyncio.to_thread(asyncio.run, _store_long(folder))
        with _editor(folder) as editor:
            editor.ask("initialize", protocolVersion=1)
            editor.ask("session/resume", sessionId=long, cwd=name)
            forks = []
            for _ in range(60):
                began = perf_counter()
                fork = editor.ask("session/fork", sessionId=long, cwd=name)["sessionId"]
                forks.append(perf_counter() - began)
                editor.ask("session/close", sessionId=fork)
            yield timed("session/fork of 100,000 messages", median(forks[10:]), at_most=FORK)
            async for row in _peers(median(forks[10:])):
                yield row
            new = editor.ask("session/new", cwd=name, mcpServers=[])["sessionId"]
            editor.updates, began = 0, perf_counter()
            editor.ask("session/prompt", sessionId=new, prompt=[{"type": "text", "text": "stream"}])
            rate = editor.updates / (perf_counter() - began)
            yield Row("updates a second, of 20,000 in one answer", 1 / rate, 1 / UPDATES, at_most_ratio=1.0)
            yield Row("  updates lost", 20_000 - editor.updates, at_most=0, unit="")
