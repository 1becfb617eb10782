"""Mount the provider against a local server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from amplifier_provider_gemini import mount
from tests.wire import gemini as wire
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.mounted import Serve, Service, mounting

KEY = "AIzaTheKeyOfTheTests"


class GeminiService(Service):
    """The service of Gemini, its requests with the keys that it writes itself."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [wire.read(request.json) for request in self.server.requests]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Serve a script, and mount the provider with a configuration."""
    async with mounting(monkeypatch, mount, "gemini", GeminiService, api_key=KEY) as serve:
        yield serve
