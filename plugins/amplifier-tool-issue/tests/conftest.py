"""A store on disk, and the issues of one project in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import SessionDocuments, documents_of
from amplifier_tool_issue import Tracker


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DurableStore]:
    """A store on disk."""
    opened = open_inbox(load_plugins(environ={}), path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


@pytest.fixture
def documents(store: DurableStore) -> Callable[..., SessionDocuments]:
    """Return the documents of the project `/p` for a session, None: for a person."""

    def of(session_id: str | None = None, **chain: Any) -> SessionDocuments:
        return documents_of(store, "/p", session_id=session_id, **chain)

    return of


@pytest.fixture
def tracker(documents: Callable[..., SessionDocuments]) -> Tracker:
    """The issues of the project for a person."""
    return Tracker(documents())


@pytest.fixture
def told(store: DurableStore) -> Callable[..., Any]:
    """Return the events since the last call: the name, the issue's number and what changed."""
    seen = 0

    async def events() -> list[tuple[str, int, list[str]]]:
        nonlocal seen
        found = [each for each in await store.events() if each.name.startswith("issue:")]
        new, seen = found[seen:], len(found)
        return [(each.name.removeprefix("issue:"), each.data["id"], each.data["changed"]) for each in new]

    return events
