"""Mount the provider against a local server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amplifier_provider_openai import mount
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.mounted import Serve, mounting

KEY = "sk-the-key-of-the-tests"


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Serve a script, and mount the provider with a configuration."""
    async with mounting(monkeypatch, mount, "openai", api_key=KEY, api="responses") as serve:
        yield serve
