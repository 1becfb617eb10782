"""Answers over HTTP that are none: each costs its own call, and says what came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Thread
from typing import Any

import pytest

from amplifier_tool_mcp.errors import EFFECT

FULL = {"error": {"code": -32000, "message": "the disk is full"}}
SAID = "the MCP server 'one' refuses the call: the disk is full"
ANSWERS: dict[str, Any] = {
    "server/discover": {"error": {"code": -32601, "message": "Method not found"}},
    "initialize": {
        "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
    },
    "notifications/initialized": {},
    "tools/list": {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}},
}
Answer = tuple[int, str, bytes]
"""A status, a type of content, and content."""


@contextmanager
def serving(answer: Callable[[str, bytes], Answer], asked: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the configuration of a server; `answer` gets the text of each call and what answers it usually.

    `asked` takes the methods of all requests. An answer whose type is `cut` misses a byte.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(request["method"])
            said = ANSWERS.get(request["method"], FULL)
            body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **said}).encode()
            status, kind = (200 if "id" in request else 202), "application/json"
            if request["method"] == "tools/call":
                status, kind, body = answer(request["params"]["arguments"]["text"], body)
            self.close_connection = kind == "cut"
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if kind == "cut" else kind)
            self.send_header("Content-Length", str(len(body) + (kind == "cut")))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *about: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # they end with their connections, before the test
    with server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield {"url": f"http://127.0.0.1:{server.server_port}/mcp"}
        finally:
            server.shutdown()


async def test_an_error_of_a_server_is_no_loss_and_an_answer_that_breaks_off_is(open_room: Any) -> None:
    asked: list[str] = []

    def answer(text: str, usual: bytes) -> Answer:
        if text == "ended":
            return 200, "text/event-stream", b": wait\n\n"
        return 200, "cut" if text == "cut" else "application/json", usual

    with serving(answer, asked) as server:
        async with open_room({"one": server}) as room:
            assert [await room.echo(each) for each in "ab"] == [SAID, SAID]
            ended = (await room.call("mcp__one__echo", text="ended")).error
            assert ended["type"] == "ServerLost"
            assert f"broke off: SSE stream ended without a response. {EFFECT}" in ended["message"]
            assert asked.count("initialize") == 1
            assert (await room.call("mcp__one__echo", text="cut")).error["type"] == "ServerLost"
            assert await room.echo("a") == SAID
            assert asked.count("initialize") == 2


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, "text/plain", b"oops"), "HTTP 500: Server returned an error response"),
        ((500, "application/json", b'{"oops": 1}'), "HTTP 500: Server returned an error response"),
        ((408, "text/plain", b""), "HTTP 408: Server returned an error response"),
        ((202, "text/plain", b""), "HTTP 202: server answered a request with 202 Accepted"),
        ((200, "application/json", b"{bad"), "HTTP 200: Failed to parse JSON response"),
        ((200, "text/event-stream", b"data: {bad\n\n"), "HTTP 200: Failed to parse SSE message"),
        ((200, "text/html", b"<html>"), "HTTP 200: Unexpected content type"),
    ],
)
async def test_what_comes_in_place_of_an_answer_is_no_refusal(open_room: Any, answer: Answer, problem: str) -> None:
    asked: list[str] = []
    with serving(lambda text, usual: answer if text == "bad" else (200, "application/json", usual), asked) as server:
        async with open_room({"one": server}) as room:
            error = (await room.call("mcp__one__echo", text="bad")).error
            assert error["type"] == "InvalidAnswer"
            assert error["message"] == f"the MCP server 'one' answers against the protocol ({problem}). {EFFECT}"
            assert await room.echo("next") == SAID
    assert asked.count("initialize") == 1


@pytest.mark.parametrize(("status", "remedy"), [(429, "Try again later"), (400, "Check its address and its headers")])
async def test_a_status_that_refuses_a_call_is_no_effect(open_room: Any, status: int, remedy: str) -> None:
    with serving(lambda text, usual: (status, "text/plain", b""), []) as server:
        async with open_room({"one": server}) as room:
            error = (await room.call("mcp__one__echo", text="a")).error
    assert error["type"] == "CallRefused"
    assert error["message"] == f"the MCP server 'one' refuses the call (HTTP {status}). {remedy}"


async def test_an_error_of_the_protocol_is_a_refusal_whatever_its_status(open_room: Any) -> None:
    with serving(lambda text, usual: (500, "application/json", usual), []) as server:
        async with open_room({"one": server}) as room:
            assert await room.echo("a") == SAID


async def test_notifications_that_nobody_reads_do_not_reach_the_sdk(open_room: Any, notified: list[str]) -> None:
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "la"}}
    logs = f"data: {json.dumps(log)}\n\n".encode() * 100

    def answer(text: str, usual: bytes) -> Answer:
        return 200, "text/event-stream", logs + b"data: " + usual + b"\n\n"

    with serving(answer, []) as server:
        async with open_room({"one": server}) as room:
            assert [await room.echo(each) for each in "ab"] == [SAID, SAID]
    assert notified == []


async def test_the_status_of_an_answer_is_that_of_its_own_call(open_room: Any) -> None:
    together = Barrier(2, timeout=60)

    def answer(text: str, usual: bytes) -> Answer:
        together.wait()
        return int(text), "text/plain", b""

    with serving(answer, []) as server:
        async with open_room({"one": server}) as room:
            said = await asyncio.gather(*(room.call("mcp__one__echo", text=each) for each in ("500", "429")))
    assert ["HTTP 500" in said[0].error["message"], "HTTP 429" in said[1].error["message"]] == [True, True]
