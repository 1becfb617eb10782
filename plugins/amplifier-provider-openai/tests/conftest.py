"""Mount the provider against a local server, and record its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator
from amplifier_core.message_models import ChatRequest, ChatResponse
from amplifier_provider_openai import mount
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.server import Script, WireServer

KEY = "sk-the-key-of-the-tests"
STREAM = ("start", "delta", "end")


class Service:
    """A mounted provider, the server that it asks, and the events that it emitted."""

    def __init__(self, server: WireServer, coordinator: ModuleCoordinator, provider: Any) -> None:
        self.server = server
        self.coordinator = coordinator
        self.provider = provider
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, *messages: Any, **more: Any) -> ChatResponse:
        """Ask with these messages, of a user if they are texts."""
        given = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
        response = await self.provider.complete(ChatRequest.model_validate({"messages": given or [user()], **more}))
        assert isinstance(response, ChatResponse)
        return response

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.json for request in self.server.requests]

    def heard(self, *names: str) -> list[dict[str, Any]]:
        """Return the data of these events, in their order."""
        return [data for event, data in self.events if event in names]


def user(text: str = "Hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


Serve = Callable[..., Any]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Serve a script, mount the provider with a configuration, and close both at the end."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    async with AsyncExitStack() as stack:

        async def begin(*script: Any, answer: Any = None, api: Any = "responses", **config: Any) -> Service:
            given: Script = answer or list(script)
            server = await stack.enter_async_context(WireServer(given))
            coordinator = ModuleCoordinator(session_id="test")
            defaults = {"api_key": KEY, "base_url": server.url, "max_retries": 0, "min_retry_delay": 0, "api": api}
            close = await mount(coordinator, {**defaults, **config})
            stack.push_async_callback(close)
            service = Service(server, coordinator, coordinator.get("providers", "openai"))

            async def record(event: str, data: dict[str, Any]) -> None:
                service.events.append((event, data))

            names = [f"llm:stream_block_{each}" for each in STREAM]
            for event in (*names, "llm:stream_aborted", "llm:request", "llm:response", "provider:retry"):
                coordinator.hooks.register(event, record)
            return service

        yield begin
