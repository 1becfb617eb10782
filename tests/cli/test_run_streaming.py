"""`amplifier run` with a provider that streams from a server: a stop keeps what was said."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROVIDER = '''
import asyncio

from amplifier_core.message_models import ChatResponse, TextBlock


class Talker:
    """Streams the lines of a server until its connection ends."""

    name = "talker"

    def __init__(self, coordinator, port):
        self.coordinator, self.port = coordinator, port

    def get_info(self):
        return None

    async def complete(self, request, **kwargs):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{request.messages[-1].content}\\n".encode())
        place = {"request_id": "r", "block_index": 0, "block_type": "text"}
        said = []
        try:
            await self.coordinator.hooks.emit("llm:stream_block_start", place)
            while piece := (await reader.readline()).decode():
                said.append(piece)
                data = {**place, "sequence": len(said) - 1, "text": piece}
                await self.coordinator.hooks.emit("llm:stream_block_delta", data)
            await self.coordinator.hooks.emit("llm:stream_block_end", place)
        finally:
            writer.close()
        return ChatResponse(content=[TextBlock(text="".join(said))])

    def parse_tool_calls(self, response):
        return []


async def mount(coordinator, config):
    await coordinator.mount("providers", Talker(coordinator, config["port"]))
'''
BUNDLE = """---
bundle: {{name: teller}}
session: {{orchestrator: {loop}}}
providers:
  - {{module: provider-talker, source: ./talker.py, config: {{port: {port}}}}}
---
Tell.
"""


class Server:
    """Says one line to "tell", and then nothing until the other side has gone; to anything else the rest."""

    def __init__(self) -> None:
        self.said, self.left, self.asked = asyncio.Event(), asyncio.Event(), list[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readline()).decode().strip())
        if self.asked[-1] == "tell":
            writer.write(b"Once upon a time\n")
            self.said.set()
            await reader.read()
            self.left.set()
        else:
            writer.write(b"there was an end.\n")
        writer.close()


async def run(*arguments: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "amplifier_foundation", *arguments)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
async def test_the_first_ctrl_c_closes_the_stream_and_keeps_what_was_said(project: Path, loop: str) -> None:
    (project / "talker.py").write_text(PROVIDER, encoding="utf-8")
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening, asyncio.timeout(60):
        port = listening.sockets[0].getsockname()[1]
        (project / "bundle.md").write_text(BUNDLE.format(port=port, loop=loop), encoding="utf-8")
        process = await run("run", "--jsonl", "tell")
        assert process.stdout is not None
        while json.loads(line := await process.stdout.readline())["type"] != "text":
            assert line
        process.send_signal(signal.SIGINT)
        await server.left.wait()
        out, err = await process.communicate()
        result = json.loads(out.splitlines()[-1])
        assert (process.returncode, result["status"], result["output"]) == (2, "cancelled", "Once upon a time\n"), err
        again = await run("run", "--resume", result["session_id"])
        out, err = await again.communicate()
    assert (again.returncode, out) == (0, b"there was an end.\n\n"), err
    assert server.asked == ["tell", "Your last message was cut. Go on where it ends."]
