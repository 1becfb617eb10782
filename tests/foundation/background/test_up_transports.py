"""Transports beside background sessions: the first events, and a transport that cannot begin."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.background.up import Control, run_background
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.paths import data_home
from tests import folder_transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_foundation.background.state import Activity

completed: list[str] = []
"""The background sessions whose event was handled."""
WAITING = f"""
import asyncio
from {__name__} import completed

async def mount(coordinator, config):
    while not completed:  # as a server of tools that takes its time to start
        await asyncio.sleep(0.01)
"""
ROUTE = {"name": "transport-folder", "site": "here", "publish": ["session:*"]}


@pytest.fixture
def make_bundle(
    tmp_path: Path, plugins: Plugins, flaky: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Bundle]:
    """Return a bundle with a session that a timer wakes at once."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    plugins.register(folder_transport, "folder-transport")
    completed.clear()
    (tmp_path / "broker").mkdir()
    timer = {"type": "timer", "config": {"interval": "1h", "immediate": True}}
    woken = {"name": "woken", "instruction": "go", "triggers": [timer]}

    def make(name: str, **more: Any) -> Bundle:
        declared = {"bundle": {"name": name}, "providers": flaky("done"), "background_sessions": [woken], **more}
        return Bundle.from_dict(declared, tmp_path)

    return make


def observe(activity: Activity) -> None:
    if activity.kind == "completed":
        completed.append(activity.name)


async def until_published(broker: Path, count: int) -> list[str]:
    """Return the names of the messages when there are so many."""
    async with asyncio.timeout(60):
        while True:
            log = broker / "log"
            names = [json.loads(line)[2] for line in log.read_text().splitlines()] if log.exists() else []
            if len(names) >= count:
                return names
            await asyncio.sleep(0.01)


async def test_what_the_first_session_emits_while_others_start_is_published(
    make_bundle: Callable[..., Bundle], tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    bundles = [make_bundle("first"), make_bundle("second", tools=[{"module": "waiting", "source": "./waiting.py"}])]
    routes = [{**ROUTE, "config": {"folder": str(tmp_path / "broker")}}]
    async with run_background(bundles, store, plugins, observer=observe, transports=routes):
        assert await until_published(tmp_path / "broker", 2) == ["session:completed"] * 2


async def test_a_transport_whose_lock_cannot_be_opened_ends_nothing_and_is_tried_again(
    make_bundle: Callable[..., Bundle], tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    bundle = make_bundle("first")
    lock = data_home() / "locks" / "transport-transport-folder.lock"
    lock.mkdir(parents=True)
    routes = [{**ROUTE, "config": {"folder": str(tmp_path / "broker")}}]
    async with run_background([bundle], store, plugins, observer=observe, control=Control(), transports=routes):
        async with asyncio.timeout(60):
            while not completed:
                await asyncio.sleep(0.01)
        lock.rmdir()
        assert await until_published(tmp_path / "broker", 1) == ["session:completed"]
