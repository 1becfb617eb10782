"""Background sessions beside a conversation: a start that fails, and an end that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import BundleError
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import wait_for
from amplifier_foundation import PreparedBundle
from amplifier_foundation.background.beside import BesideConversation

from .bench import PATIENCE

Open = Callable[..., BesideConversation]
WORKER = "---\nbundle: {name: worker}\n---\nWork.\n"


@pytest.fixture
def open_beside(
    store: DurableStore,
    plugins: Plugins,
    tmp_path: Path,
    make_bundle: Callable[..., PreparedBundle],
    monkeypatch: pytest.MonkeyPatch,
) -> Open:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))

    def make(*background_sessions: dict[str, Any], **sections: Any) -> BesideConversation:
        bundle = make_bundle("chat", background_sessions=list(background_sessions), **sections).bundle
        return BesideConversation(bundle, store, plugins, str(tmp_path), lambda activity: None)

    return make


async def test_a_start_that_failed_is_tried_again(open_beside: Open, tmp_path: Path) -> None:
    async with open_beside({"name": "lost", "bundle": "./lost.md"}) as beside:
        with pytest.raises(BundleError, match=r"lost\.md"):
            await beside.start()
        (tmp_path / "lost.md").write_text(WORKER)
        assert await beside.start() is None
        assert beside.running is not None
        assert await beside.drain()


async def test_a_second_conversation_leaves_the_workers_to_the_first(open_beside: Open) -> None:
    async with open_beside({"name": "one"}) as first, open_beside({"name": "one"}) as second:
        assert await first.start() is None
        assert await first.start() is None
        assert "chat" in str(await second.start())
        assert second.running is None


async def test_an_end_that_is_cut_waits_for_the_sessions_all_the_same(open_beside: Open, held: Any) -> None:
    beside = open_beside({"name": "one", "instruction": "wait"}, providers=held)
    leaving = asyncio.Event()

    async def converse() -> None:
        async with beside:
            await beside.start()
            assert beside.running is not None
            manager = beside.running.manager
            await manager.fire("one")
            assert await wait_for(lambda: any(row["running"] for row in manager.get_status().values()), PATIENCE)
            beside.grace = 3600.0
            leaving.set()

    talking = asyncio.create_task(converse())
    await leaving.wait()
    for _ in range(5):  # into the end of the block
        await asyncio.sleep(0)
    talking.cancel()
    await asyncio.wait({talking}, timeout=PATIENCE)
    assert talking.cancelled()
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("background-")]
