"""Mount the provider against a local server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amplifier_provider_anthropic import mount
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.mounted import Serve, mounting

KEY = "sk-ant-the-key-of-the-tests"


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Serve a script, and mount the provider with a configuration."""
    async with mounting(monkeypatch, mount, "anthropic", api_key=KEY) as serve:
        yield serve
