"""Divide answers into lines as their formats do: some SDKs break at other characters, and on what is no data."""

from __future__ import annotations

import re
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_LINE_FEED, _LINE_END = re.compile(rb"\n"), re.compile(rb"\r\n|\n|\r(?!\n|\Z)")
"""The ends of lines of JSON, and those of server-sent events; at the end of a piece, a `\\n` may follow a `\\r`."""
_NO_DATA = (b"", b"event", b"id", b"retry")
"""The fields of server-sent events beside their data; a comment has an empty name."""


async def divide_json_lines(response: Any) -> None:
    """Divide lines of JSON at line feeds alone, without empty ones: a hook for answers of `httpx` and `httpx2`."""
    response.aiter_lines = partial(_read_json_lines, response.aiter_bytes)


async def keep_data(response: Any) -> None:
    """Leave out of server-sent events what is no data: a hook for answers of `httpx` and `httpx2`."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        response.aiter_bytes = partial(_read_data, response.aiter_bytes)


async def _read_json_lines(read: Any) -> AsyncGenerator[str]:
    async with aclosing(_divide(read, None, _LINE_FEED)) as lines:
        async for line in lines:
            if line.strip():
                yield line.decode(errors="replace")


async def _read_data(read: Any, chunk_size: int | None = None) -> AsyncGenerator[bytes]:
    async with aclosing(_divide(read, chunk_size, _LINE_END)) as lines:
        async for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":
                yield b"data: " + value.removeprefix(b" ") + b"\n"
            elif name not in _NO_DATA or not line.strip():
                yield line + b"\n"


async def _divide(read: Any, chunk_size: int | None, ends: re.Pattern[bytes]) -> AsyncGenerator[bytes]:
    rest = bytearray()
    async with aclosing(read(chunk_size)) as pieces:
        async for piece in pieces:
            rest += piece
            if ends.search(piece):
                *lines, last = ends.split(rest)
                rest = bytearray(last)
                for line in lines:
                    yield line
    yield bytes(rest)
