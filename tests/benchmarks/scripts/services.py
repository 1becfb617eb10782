"""Serve four model services at one address, in a process of its own; `/7` in the address asks for answers of 7 pieces.

It prints its address, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import re
import sys
from functools import cache
from typing import TYPE_CHECKING

import click

from tests.wire import anthropic, gemini, ollama, openai
from tests.wire.server import WireServer

if TYPE_CHECKING:
    from tests.wire.server import Answer, Request

PIECE = "twelve chars"


@cache
def answer_of(path: str) -> Answer:
    """Return the answer of the service with this path."""
    found = re.match(r"/(\d+)/", path)
    pieces = (PIECE,) * (int(found[1]) if found else 1)
    if "/responses" in path:
        return openai.says(openai.text(*pieces))
    if "/api/chat" in path:
        return ollama.says(ollama.text(*pieces))
    if ":streamGenerateContent" in path:
        return gemini.says(gemini.text(*pieces))
    return anthropic.says(anthropic.text(*pieces))


def answer(request: Request) -> Answer:
    """Return the answer to a request."""
    return answer_of(request.target.partition("?")[0])


async def serve() -> None:
    """Serve until the standard input ends."""
    async with WireServer(answer) as server:
        click.echo(server.url)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
