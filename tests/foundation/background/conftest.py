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
from amplifier_foundation import BackgroundSessionManager, Bundle, EventRouter, PreparedBundle
from amplifier_foundation.background.up import Control, run_background

from .bench import FLAKY, HELD, Bench, FedTrigger, Feeds
from .stages import GATED, PIECES, WAIT, Stage


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


@pytest.fixture
def make_stage(tmp_path: Path, store: DurableStore, plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Bring up a bundle with a gated model."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "gated.py").write_text(GATED)
    (folder / "wait.py").write_text(WAIT)

    @asynccontextmanager
    async def make(
        pieces: list[str] = PIECES, runner: str | None = None, *, waits: bool = False
    ) -> AsyncIterator[Stage]:
        config = {"folder": str(folder), "pieces": pieces, "waits": waits}
        queue = {"name": "queue", "instruction": "{data.prompt}", **({"runner": runner} if runner else {})}
        sections: dict[str, Any] = {
            "providers": [{"module": "provider-gated", "source": "./gated.py", "config": config}],
            "tools": [
                {"module": "tool-delegate"},
                {"module": "tool-wait", "source": "./wait.py", "config": {"folder": str(folder)}},
            ],
            "agents": {"helper": {"instruction": "You help."}},
            "background_sessions": [queue],
        }
        bundle, control = Bundle.from_dict({"bundle": {"name": "b"}, **sections}, folder), Control()
        async with run_background([bundle], store, plugins, control=control):
            yield Stage(folder, store, control)

    return make
