"""A store, and sessions made from real modules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, load_plugins
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import Bundle, PreparedBundle, open_inbox

MakeBundle = Callable[..., PreparedBundle]


@pytest.fixture
def plugins() -> Plugins:
    """The installed plugins, loaded afresh."""
    return load_plugins(environ={})


@pytest.fixture
async def store(plugins: Plugins, tmp_path: Path) -> AsyncIterator[DurableStore]:
    """A store on disk."""
    opened = open_inbox(plugins, path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


def playbook(rules: list[dict[str, Any]] | None = None, say: str = "You said: {prompt}") -> list[dict[str, Any]]:
    """Return the providers section of a bundle that answers by `rules`, else with `say`."""
    config: dict[str, Any] = {"rules": rules or [], "otherwise": {"say": say}}
    return [{"module": "provider-playbook", "config": config}]


@pytest.fixture
def make_bundle(tmp_path: Path) -> MakeBundle:
    """Make a prepared bundle from sections; without providers it has none of its own."""

    def make(name: str = "child", **sections: Any) -> PreparedBundle:
        return PreparedBundle.of(Bundle.from_dict({"bundle": {"name": name}, **sections}, tmp_path))

    return make


@pytest.fixture
async def parent(make_bundle: MakeBundle, tmp_path: Path) -> AsyncIterator[AmplifierSession]:
    """A session that answers, as the parent of others."""
    prepared = make_bundle("parent", providers=playbook(), tools=[{"module": "tool-filesystem"}])
    session = await prepared.create_session(session_id="parent-1", session_cwd=tmp_path)
    yield session
    await session.cleanup()


@pytest.fixture
async def eager_tasks() -> None:
    """Begin each task of the running loop at once, as the program around it may."""
    factory: Any = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("asyncio.eager_task_factory is new in Python 3.12")
    asyncio.get_running_loop().set_task_factory(factory)
