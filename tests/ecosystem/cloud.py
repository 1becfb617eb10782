"""A service that a provider reaches over HTTP: it answers from a list, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any


class Cloud:
    """A server on the loopback interface; each answer of `script` is a status and a body."""

    def __init__(self, script: list[tuple[int, dict[str, Any]]]) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.url = ""

    async def __aenter__(self) -> Cloud:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.keys.add(headers["x-api-key"])
        self.requests.append(json.loads(await reader.readexactly(int(headers["Content-Length"]))))
        status, body = self.script.pop(0)
        content = json.dumps(body).encode()
        phrase = HTTPStatus(status).phrase
        writer.write(f"HTTP/1.1 {status} {phrase}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def says(*content: dict[str, Any], tokens: tuple[int, int] = (100, 10)) -> tuple[int, dict[str, Any]]:
    """Return an answer of these blocks."""
    calls = any(block["type"] == "tool_use" for block in content)
    return 200, {
        "content": list(content),
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]},
    }


def fails(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """Return an answer that is an error."""
    return status, {"error": {"message": message}}


def text(words: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    """Return a block of thinking, signed."""
    return {"type": "thinking", "thinking": words, "signature": "signed"}


def calls(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
