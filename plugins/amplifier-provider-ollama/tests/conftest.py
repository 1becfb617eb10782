"""Mount the provider against a local server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amplifier_provider_ollama import mount
from tests.wire.authorities import one_authority  # noqa: F401  # a fixture
from tests.wire.mounted import Serve, mounting


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Serve a script, and mount the provider with a configuration."""
    async with mounting(monkeypatch, mount, "ollama") as serve:
        yield serve
