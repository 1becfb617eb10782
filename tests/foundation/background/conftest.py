"""Background sessions on a bench."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation import BackgroundSessionManager, EventRouter, PreparedBundle

from .bench import FLAKY, HELD, Bench, FedTrigger, Feeds


@pytest.fixture
def open_bench(
    parent: AmplifierSession, store: DurableStore, plugins: Plugins, make_bundle: Callable[..., PreparedBundle]
) -> Callable[..., Any]:
    """Open a bench whose sessions are made from a bundle with these sections."""
    FedTrigger.made = []
    plugins.register(Feeds(), "feeds")

    @asynccontextmanager
    async def bench(
        store: DurableStore = store, clock: VirtualClock | None = None, **sections: Any
    ) -> AsyncIterator[Bench]:
        clock, router = clock or VirtualClock(), EventRouter(store)
        bundle = make_bundle("family", **sections)
        async with BackgroundSessionManager(
            parent, router, store, plugins=plugins, bundle=bundle, clock=clock
        ) as manager:
            yield Bench(manager, store, router, clock)

    return bench


@pytest.fixture
def held(tmp_path: Path) -> list[dict[str, Any]]:
    """Providers of a bundle whose model answers when a test lets it."""
    (tmp_path / "held.py").write_text(HELD)
    return [{"module": "provider-held", "source": "./held.py"}]


@pytest.fixture
def flaky(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return the providers of a bundle whose model gives these answers, or raises them."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    return lambda *answers: [{"module": "provider-flaky", "source": "./flaky.py", "config": {"answers": answers}}]
