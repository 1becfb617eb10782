"""A store on disk, and the notes of one project in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import SessionDocuments, documents_of
from amplifier_tool_memory import Notes


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DurableStore]:
    """A store on disk."""
    opened = open_inbox(load_plugins(environ={}), path=tmp_path / "store" / "amplifier.db")
    yield opened
    await opened.close()


@pytest.fixture
def documents(store: DurableStore) -> Callable[..., SessionDocuments]:
    """Return the documents of a project for a session, None: for a person."""

    def of(session_id: str | None = None, project: str = "/p", **chain: Any) -> SessionDocuments:
        return documents_of(store, project, session_id=session_id, **chain)

    return of


@pytest.fixture
def notes(documents: Callable[..., SessionDocuments]) -> Notes:
    """The notes of the project for a person."""
    return Notes(documents())
