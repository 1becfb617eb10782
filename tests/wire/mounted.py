"""Mount a provider against a local server, and record its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.llm_errors import ConfigurationError
from amplifier_core.message_models import ChatRequest, ChatResponse

from .server import Answer, Script, WireServer, json_answer, show_error

BLOCKS = [f"llm:stream_block_{part}" for part in ("start", "delta", "end")]
RECORDED = (*BLOCKS, "llm:stream_aborted", "llm:request", "llm:response", "provider:retry")

VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_API_KEY", "OLLAMA_HOST"),
    *("HTTP_PROXY", "HTTPS_PROXY"),
)

HALVES: list[Any] = [
    "caf\udce9",
    {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "c1", "name": "look", "input": {"at": {"caf\udce9": "\ud83d\ude00"}}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "half: \ud83d"},
]
"""Messages with halves of surrogate pairs, and a pair in two halves."""


INVENTED: list[Any] = [
    message
    for number, name in enumerate(("multi_tool_use.parallel", "", "two\nlines", "1st", "x" * 90, "look"))
    for message in (
        {"role": "assistant", "content": [{"type": "tool_call", "id": f"c{number}", "name": name, "input": {}}]},
        {"role": "tool", "tool_call_id": f"c{number}", "name": name, "content": "there is no such tool"},
    )
]
"""A history with calls of tools whose names a model has made up, and of one that there is."""


def calls_of_one_id(call_id: str) -> list[Any]:
    """Return a history of four calls with one id, as some gateways give them; it may be empty."""
    history: list[Any] = []
    for answer in range(2):
        places = (answer, answer + 10)
        calls = [{"id": call_id, "tool": "look", "arguments": {"at": at}} for at in places]
        history.append({"role": "assistant", "content": "", "tool_calls": calls})
        history += [{"role": "tool", "tool_call_id": call_id, "name": "look", "content": f"saw {at}"} for at in places]
    return history


NAMELESS: list[Any] = [
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c0", "tool": "", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c0", "name": "", "content": "there is no such tool"},
]
"""A call without a name, as loops keep it."""
SENT_NAMES = ["multi_tool_use_parallel", "_", "two_lines", "_1st", "x" * 64, "look"]
"""The names that services take in their place."""


def require_marks(body: Any) -> None:
    """Require that a request has marks in place of the halves in `HALVES`, and the character of the pair."""
    text = json.dumps(body, ensure_ascii=False)
    assert (text.count("caf\ufffd"), text.count("half: \ufffd"), text.count("\U0001f600")) == (2, 1, 1)


Serve = Callable[..., Any]
"""Takes a script, or an `answer` to every request, and the configuration; returns a `Service` when it is awaited."""


class Service:
    """A mounted provider, the server that it asks, and the events that it emitted."""

    def __init__(self, server: WireServer, coordinator: ModuleCoordinator, provider: Any) -> None:
        self.server = server
        self.coordinator = coordinator
        self.provider = provider
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, *messages: Any, **more: Any) -> ChatResponse:
        """Ask with these messages, of a user if they are texts."""
        given = [user(each) if isinstance(each, str) else each for each in messages]
        response = await self.provider.complete(ChatRequest.model_validate({"messages": given or [user()], **more}))
        assert isinstance(response, ChatResponse)
        return response

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.json for request in self.server.requests]

    def heard(self, *names: str) -> list[dict[str, Any]]:
        """Return the data of these events, in their order."""
        return [data for event, data in self.events if event in names]


async def ask_slowly(service: Service, answer: Answer, monkeypatch: pytest.MonkeyPatch, seconds: float) -> ChatResponse:
    """Ask for an answer that its server holds, and let these seconds pass meanwhile, by the clock of the loop."""
    asking = asyncio.create_task(service.ask())
    while not service.server.requests or service.server.sent < (answer.hold_after or 0):
        await asyncio.sleep(0.01)
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert answer.held_until is not None
    answer.held_until.set()
    return await asking


def user(text: str = "Hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


@asynccontextmanager
async def mounting(
    monkeypatch: pytest.MonkeyPatch, mount: Callable[..., Any], name: str, kind: type[Service] = Service, **usual: Any
) -> AsyncIterator[Serve]:
    """Serve scripts, mount the provider with the `usual` configuration and what a test adds, and close both at the end.

    Without variables of the environment that name keys, services and proxies.
    """
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    async with AsyncExitStack() as stack:

        async def begin(*script: Any, answer: Any = None, **config: Any) -> Service:
            given: Script = answer or list(script)
            server = await stack.enter_async_context(WireServer(given))
            coordinator = ModuleCoordinator(session_id="test")
            defaults = {"base_url": server.url, "max_retries": 0, "min_retry_delay": 0, **usual}
            close = await mount(coordinator, {**defaults, **config})
            stack.push_async_callback(close)
            service = kind(server, coordinator, coordinator.get("providers", name))

            async def record(event: str, data: dict[str, Any]) -> None:
                service.events.append((event, data))

            for event in RECORDED:
                coordinator.hooks.register(event, record)
            return service

        yield begin


async def require_kept_at_its_place(serve: Any, status: int, failure: Callable[..., Any]) -> None:
    """Fail when a request is sent on to another host or port; `failure` returns the error of asking a service."""
    for host in ("localhost", "127.0.0.1"):
        async with WireServer() as other:
            moved = other.url.replace("127.0.0.1", host)
            caught = await failure(await serve(json_answer(b"", status, location=moved)))
            assert (type(caught), caught.retryable) == (ConfigurationError, False)
            assert show_error(caught).endswith(
                f"on to {moved}. Set base_url to that address, if it may have your prompts."
            )
            assert other.requests == []


async def require_sent_on_at_its_place(serve: Any, said: Answer, failure: Callable[..., Any]) -> None:
    """Fail when a request is not sent on whole at its host and port, or on and on; `said` says "moved"."""
    service = await serve(json_answer(b"", 307, location="/there"), said)
    assert (await service.ask()).content[0].text == "moved"
    for status, problem, times in (
        (302, "/there, without their content. Set base_url so", 1),
        (308, "on 10 times", 11),
    ):
        service = await serve(answer=lambda request, status=status: json_answer(b"", status, location="/there?a=b"))
        caught = await failure(service)
        assert (type(caught), caught.retryable) == (ConfigurationError, False)
        assert problem in show_error(caught)
        assert "a=b" not in show_error(caught)
        assert [request.method for request in service.server.requests] == ["POST"] * times
