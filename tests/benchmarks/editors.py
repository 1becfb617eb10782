"""Measure the agent for editors: how soon it answers, forks of a long history, and the stream of updates."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.storages import open_store

from .environment import peers_python
from .measure import Row, called, in_turns
from .stores import PEERS
from .storing import LONG
from .worker import SCRIPTS, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from .measure import Sample

START = 12  # goal: times `python -c pass`
FORK = 20.0  # goal: times an agent by hand, which answers after a one-row transaction
STREAM = 5.0  # goal: times an agent by hand, which writes its updates in a loop
MESSAGES, UPDATES = 100_000, 20_000
OURS = [sys.executable, "-m", "amplifier_foundation", "acp"]
BARE = [sys.executable, str(SCRIPTS / "bare_agent.py")]

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
def _editor(folder: Path, command: Sequence[str] = OURS) -> Iterator[_Editor]:
    environ = {**os.environ, "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environ) as process:
        yield _Editor(process)
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def _agents() -> Iterator[tuple[Path, _Editor, _Editor]]:
    """Yield a folder with a bundle, an editor that speaks with our agent there, and one with an agent by hand."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name:
        folder = Path(name)
        (folder / "bundle.md").write_text(BUNDLE)
        (folder / "streaming.py").write_text(PROVIDER)
        with _editor(folder) as ours, _editor(folder, [*BARE, str(folder / "bare.db")]) as bare:
            ours.ask("initialize", protocolVersion=1)
            yield folder, ours, bare


async def _start() -> AsyncIterator[Row]:
    """Start agents beside Python."""
    with TemporaryDirectory(prefix="amplifier-bench-") as name:
        folder = Path(name)
        (folder / "bundle.md").write_text(BUNDLE)

        async def initialize() -> float:
            began = perf_counter()
            with _editor(folder) as editor:
                editor.ask("initialize", protocolVersion=1)
                return perf_counter() - began

        ours, python = await in_turns(initialize, called(_start_python, 2), rounds=9)
    yield Row("initialize answered, from the start / python -c pass", ours, python, at_most_ratio=START)


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


async def _forks() -> AsyncIterator[Row]:
    """Fork a long session beside an agent by hand, and beside the stores of the peers, which copy it."""
    with _agents() as (folder, ours, bare):
        long = await asyncio.to_thread(asyncio.run, _store_long(folder))
        ours.ask("session/resume", sessionId=long, cwd=str(folder))
        samples = [_forking(editor, long, folder) for editor in (ours, bare)]
        fork, limit = await in_turns(*samples, rounds=15)
        yield Row(f"session/fork of {MESSAGES:,} messages / by hand", fork, limit, at_most_ratio=FORK)
    python = peers_python()
    async with AsyncExitStack() as opened:
        for name in PEERS:
            figure = None
            if python is not None:
                script = f"store_{name.replace('-', '_')}"
                figure = await (await opened.enter_async_context(worker(python, script))).measure(f"fork_{LONG}")
            yield Row(f"  beside a fork of {LONG:,} in the store of {name}", fork, figure, note="not installed")


def _forking(editor: _Editor, session: str, folder: Path) -> Sample:
    async def sample() -> float:
        began = perf_counter()
        fork = editor.ask("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
        taken = perf_counter() - began
        editor.ask("session/close", sessionId=fork)
        return taken

    return sample


async def _store_long(folder: Path) -> str:
    """Store a session of 100,000 messages, and return its id."""
    store = open_store(load_plugins(), None, folder / "home" / "amplifier.db")
    name = "long-history"
    await store.create(SessionRecord(name, name="long", project=os.path.realpath(folder), status="idle"))
    pair = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]
    for start in range(0, MESSAGES, 10_000):
        await store.append(name, pair * 5_000, at=start)
    await store.update(name, turn_count=MESSAGES // 2)
    await store.close()
    return name


async def _updates() -> AsyncIterator[Row]:
    """Stream an answer of many pieces beside an agent by hand."""
    with _agents() as (folder, ours, bare):
        ids = [editor.ask("session/new", cwd=str(folder), mcpServers=[])["sessionId"] for editor in (ours, bare)]

        def stream(editor: _Editor, session: str) -> None:
            editor.updates = 0
            editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "stream"}])
            lost.append(UPDATES - editor.updates)

        lost: list[int] = []
        samples = [called(partial(stream, *each), 1) for each in zip((ours, bare), ids, strict=True)]
        taken, limit = await in_turns(*samples, rounds=5)
    yield Row(f"{UPDATES:,} updates of one answer / by hand", taken, limit, at_most_ratio=STREAM)
    yield Row("  updates lost", sum(lost), UPDATES * len(lost), at_most_ratio=0, unit="")


PARTS = (_start, _forks, _updates)
