"""Test what a server does with bytes that are no request, or that may be two."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from amplifier_trigger_webhook import connections

from .conftest import Run, Running


def place_of(bench: Running) -> tuple[str, int]:
    url = urlsplit(bench.trigger.url)
    return str(url.hostname), int(url.port or 0)


def send_raw(bench: Running, request: bytes, *more: bytes) -> bytes:
    """Send bytes, and more after each answer; return all answers, until the server closes the connection."""
    answers = b""
    with socket.create_connection(place_of(bench), timeout=120) as connection, suppress(ConnectionResetError):
        connection.sendall(request)
        for each in more:
            answers += connection.recv(65536)
            connection.sendall(each)
        while got := connection.recv(65536):
            answers += got
    return answers


BODY = b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
SOCKET = b"Upgrade: websocket\r\nConnection: Upgrade, close\r\nContent-Length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


async def test_a_flood_of_what_is_no_http_is_few_lines(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async with run() as bench:
        for _ in range(20):
            assert b" 400 " in await asyncio.to_thread(send_raw, bench, b"\x16\x03\x01\r\n\r\n")
            wish = b"POST /hook HTTP/1.1\r\nHost: evil.example\r\n" + SOCKET
            assert b" 421 " in await asyncio.to_thread(send_raw, bench, wish)
            answered = b"POST /hook HTTP/1.1\r\nHost: evil.example\r\n" + CHUNKED
            assert b" 421 " in await asyncio.to_thread(send_raw, bench, answered, b"no chunk\r\n")
        host, port = place_of(bench)
    server = f"the server at {host}, port {port}, refused"
    reason = f"with 400 within a minute: {connections.REASONS[400]}"
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each for each in lines if "with 421" not in each] == [
        next(each for each in lines if "listens at" in each),
        f"{server} 1 request {reason}",
        f"{server} 39 requests {reason}",
    ]
    assert len([each for each in lines if "with 421" in each]) == 2


@pytest.mark.parametrize("path", [b"/", b"/hook"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
@pytest.mark.parametrize(
    "rest", [CHUNKED + b"zz\r\n", b"Content-Length: 2\r\n" + CHUNKED, b"Expect: 100-continue\r\n" + CHUNKED + b"zz\r\n"]
)
async def test_a_broken_request_of_any_kind_gets_one_answer_and_one_line(
    method: bytes, path: bytes, rest: bytes, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with run(path="/hook") as bench:
        answer = await asyncio.to_thread(
            send_raw, bench, method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + rest
        )
    assert (answer.count(b"HTTP/1.1 "), answer.startswith(b"HTTP/1.1 400 ")) == (1, True)
    assert not [each for each in caplog.records if each.levelno > logging.WARNING or each.exc_info]
    assert bench.events == []


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n",
        b"HTTP/1.0\r\nHost: localhost\r\n",
    ],
)
async def test_a_request_whose_end_is_unclear_is_refused_and_nothing_after_it_is_read(
    head: bytes, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with run() as bench:
        path = urlsplit(bench.trigger.url).path.encode()
        second = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + BODY
        answers = await asyncio.to_thread(
            send_raw, bench, b"POST " + path + b" " + head + CHUNKED + b"0\r\n\r\n" + second
        )
        assert (answers.count(b"HTTP/1.1"), answers.startswith(b"HTTP/1.1 400 ")) == (1, True)
        assert b" 202 " in await asyncio.to_thread(send_raw, bench, second)
    assert len(bench.events) == 1
    assert "a proxy sends either Content-Length or, with HTTP/1.1, Transfer-Encoding" in caplog.text
