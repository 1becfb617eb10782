"""Measure the streams of the providers beside their own SDKs: a piece, and many at once."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader
from amplifier_core.streaming import STREAM_BLOCK_DELTA

from .environment import ROOT
from .measure import Row, in_turns
from .scripts.services import PIECE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .measure import Sample

PIECE_RATIO = 2.0  # goal: times the SDK, whose piece takes a tenth of a millisecond
CROWD_RATIO = 2.0  # goal: times the SDK

LONG, SHORT = 500, 20
"""Pieces of an answer."""
CROWD = 200
ROUNDS = 7
KEY = "key-of-the-benchmarks"


@dataclass(frozen=True)
class Service:
    """A model service: the model that is asked, its SDK with a function to make a client and one to count pieces, and
    the shortest script that asks it."""

    name: str
    model: str
    connect: Callable[[str], Any]
    count: Callable[[Any, str], Awaitable[int]]
    script: str


def _connect_anthropic(url: str) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(api_key=KEY, base_url=url)


async def _count_anthropic(client: Any, model: str) -> int:
    asked = client.messages.stream(model=model, max_tokens=100, messages=[{"role": "user", "content": "Hello"}])
    async with asked as stream:
        return sum([event.type == "content_block_delta" async for event in stream])


def _connect_openai(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=KEY, base_url=url)


async def _count_openai(client: Any, model: str) -> int:
    async with await client.responses.create(model=model, input="Hello", stream=True) as events:
        return sum([event.type == "response.output_text.delta" async for event in events])


def _connect_ollama(url: str) -> Any:
    from ollama import AsyncClient

    return AsyncClient(host=url)


async def _count_ollama(client: Any, model: str) -> int:
    asked = await client.chat(model=model, messages=[{"role": "user", "content": "Hello"}], stream=True)
    return sum([bool(piece.message.content) async for piece in asked])


def _connect_gemini(url: str) -> Any:
    from google import genai

    return genai.Client(api_key=KEY, http_options=genai.types.HttpOptions(base_url=url)).aio


async def _count_gemini(client: Any, model: str) -> int:
    asked = await client.models.generate_content_stream(model=model, contents="Hello")
    return sum([bool(piece.text) async for piece in asked])


SERVICES = (
    Service(
        "anthropic",
        "claude-sonnet-5-5",
        _connect_anthropic,
        _count_anthropic,
        """from anthropic import Anthropic
client = Anthropic(api_key="{key}", base_url="{url}")
said = [{{"role": "user", "content": "Hello"}}]
with client.messages.stream(model="{model}", max_tokens=100, messages=said) as asked:
    for text in asked.text_stream:
        print(text, end="")
""",
    ),
    Service(
        "openai",
        "gpt-6.1-terra",
        _connect_openai,
        _count_openai,
        """from openai import OpenAI
client = OpenAI(api_key="{key}", base_url="{url}")
for event in client.responses.create(model="{model}", input="Hello", stream=True):
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
""",
    ),
    Service(
        "ollama",
        "qwen3:8b",
        _connect_ollama,
        _count_ollama,
        """from ollama import Client
client = Client(host="{url}")
asked = client.chat(model="{model}", messages=[{{"role": "user", "content": "Hello"}}], stream=True)
for piece in asked:
    print(piece.message.content, end="")
""",
    ),
    Service(
        "gemini",
        "gemini-3.8-flash",
        _connect_gemini,
        _count_gemini,
        """from google import genai
client = genai.Client(api_key="{key}", http_options=genai.types.HttpOptions(base_url="{url}"))
asked = client.models.generate_content_stream(model="{model}", contents="Hello")
for piece in asked:
    print(piece.text, end="")
""",
    ),
)


async def pieces() -> AsyncIterator[Row]:
    """Stream long answers."""
    async with serving() as url:
        for service in SERVICES:
            yield await _piece(service, f"{url}/{LONG}")


async def crowds() -> AsyncIterator[Row]:
    """Stream many answers at once."""
    async with serving() as url:
        for service in SERVICES:
            for row in await _crowd(service, f"{url}/{SHORT}"):
                yield row


PARTS = (pieces, crowds)


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Run the services in a process of their own; yield their address."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.benchmarks.scripts.services", stdin=pipe, stdout=pipe, cwd=ROOT
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


# through amplifier


class _Listener:
    """A session that asks a service, and the count of the pieces it has heard."""

    def __init__(self, service: Service, url: str, loader: ModuleLoader) -> None:
        config = {"base_url": url, "api_key": KEY, "model": service.model, **more_config(service)}
        plan: dict[str, Any] = {
            "session": {"orchestrator": "loop-streaming", "context": "context-simple"},
            "providers": [{"module": f"provider-{service.name}", "config": config}],
        }
        self._session = AmplifierSession(plan, loader, "bench")
        self._heard = 0

    async def __aenter__(self) -> _Listener:
        await self._session.initialize()
        self._session.coordinator.hooks.register(STREAM_BLOCK_DELTA, self._hear)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.cleanup()

    async def _hear(self, event: str, data: dict[str, Any]) -> None:
        self._heard += len(data["text"]) == len(PIECE)

    async def count(self) -> int:
        """Return the pieces of one turn."""
        self._heard = 0
        await self._session.execute("Hello")
        await self._session.coordinator.get("context").clear()
        return self._heard


def more_config(service: Service) -> dict[str, Any]:
    return {"api": "responses"} if service.name == "openai" else {}


# the rows


async def _piece(service: Service, url: str) -> Row:
    async with service.connect(url) as client, _Listener(service, url, ModuleLoader()) as listener:
        ours, limit = await in_turns(
            _counted(listener.count, LONG), _counted(lambda: service.count(client, service.model), LONG), rounds=ROUNDS
        )
    return Row(f"a streamed piece of {service.name} / its SDK", ours, limit, at_most_ratio=PIECE_RATIO)


def _counted(count: Callable[[], Awaitable[int]], pieces: int) -> Sample:
    """Return a sample of one answer: the seconds for a piece."""

    async def sample() -> float:
        start = perf_counter()
        heard = await count()
        seconds = perf_counter() - start
        if heard != pieces:
            raise RuntimeError(f"{heard} of {pieces} pieces came")
        return seconds / pieces

    return sample


async def _crowd(service: Service, url: str) -> list[Row]:
    lost = asked = 0

    async def all_at_once(counts: list[Callable[[], Awaitable[int]]]) -> float:
        nonlocal lost, asked
        start = perf_counter()
        heard = await asyncio.gather(*(count() for count in counts))
        seconds = perf_counter() - start
        lost, asked = lost + CROWD * SHORT - sum(heard), asked + CROWD * SHORT
        return seconds

    async def ours() -> float:
        loader = ModuleLoader()
        async with AsyncExitStack() as stack:
            listeners = [await stack.enter_async_context(_Listener(service, url, loader)) for _ in range(CROWD)]
            return await all_at_once([listener.count for listener in listeners])

    async def theirs() -> float:
        async with service.connect(url) as client:
            return await all_at_once([lambda: service.count(client, service.model)] * CROWD)

    took, limit = await in_turns(ours, theirs, rounds=3)
    name = f"{CROWD} streams of {service.name} at once"
    return [
        Row(f"{name} / its SDK", took, limit, at_most_ratio=CROWD_RATIO),
        Row(f"{name}, pieces lost / all", lost, asked, at_most_ratio=0, unit=""),
    ]
