"""The documents of a project, as a session and a command change them."""

from __future__ import annotations

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import DocumentConflict
from amplifier_core.testing import MemoryStore
from amplifier_core.utils.secrets import hide_secret
from amplifier_foundation.events import EventRouter
from amplifier_foundation.sessions.documents import SessionDocuments


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_a_change_and_its_event_are_stored_together_and_heard_at_once(store: MemoryStore) -> None:
    router = EventRouter(store)
    documents = SessionDocuments(store, "/p", "s", cause="e0", depth=2, publish=router.publish)
    async with router.subscribe(["issue:*"]) as heard:
        changes = [documents.change("issues", "1", {"state": "open"})]
        stored = await documents.write(changes, [("issue:opened", {"key": "1"})])
        event = await anext(aiter(heard))
    assert [event] == stored == await store.events()
    told = (event.name, event.data, event.source_session_id, event.cause, event.depth, event.project)
    assert told == ("issue:opened", {"key": "1"}, "s", "e0", 2, "/p")
    with pytest.raises(DocumentConflict, match="document '1' of 'issues' was changed meanwhile"):
        await documents.write(changes, [("issue:opened", {"key": "1"})])
    assert len(await store.events()) == 1


async def test_documents_are_read_and_listed_within_the_project(store: MemoryStore) -> None:
    mine, others = SessionDocuments(store, "/p", "s"), SessionDocuments(store, "/q", "s")
    await mine.write([mine.change("issues", key, {"state": "open"}) for key in ("1", "2", "3")])
    await mine.write([mine.change("issues", "2", {"state": "done"}, 1), mine.change("issues", "3", None, 1)])
    found = await mine.get("issues", "2")
    assert found is not None
    assert (found.data, found.version) == ({"state": "done"}, 2)
    listed = await mine.find("issues", where={"state": ["open", "done"]}, newest=True, limit=2)
    assert [each.key for each in listed] == ["2", "1"]
    assert [each.key for each in await mine.find("issues", prefix="1")] == ["1"]
    assert (await others.get("issues", "1"), await others.find("issues")) == (None, [])


async def test_a_change_of_another_project_is_refused_with_all_others(store: MemoryStore) -> None:
    documents = SessionDocuments(store, "/p", "s")
    changes = [documents.change("issues", "1", {}), DocumentChange("/q", "issues", "2", {})]
    with pytest.raises(ValueError, match="document '2' of 'issues' belongs to project '/q'.* of '/p'"):
        await documents.write(changes, [("issue:opened", {})])
    assert (await documents.find("issues"), await store.events()) == ([], [])


async def test_secrets_reach_neither_a_document_nor_an_event(store: MemoryStore) -> None:
    hide_secret("correct-horse-battery")
    documents = SessionDocuments(store, "/p", "s")
    data = {"title": "correct-horse-battery fails", "log": [{"text": "Bearer sk-ant-api03-0123456789abcdefghij"}]}
    stored = await documents.write([documents.change("issues", "1", data)], [("issue:opened", data)])
    found = await documents.get("issues", "1")
    assert found is not None
    for each in (found.data, stored[0].data, (await store.events())[0].data):
        assert each["title"] == "[REDACTED] fails"
        assert "0123456789" not in str(each)
    assert data["title"] == "correct-horse-battery fails"


async def test_a_command_writes_without_a_session(store: MemoryStore) -> None:
    documents = SessionDocuments(store, "/p")
    [event] = await documents.write([documents.change("issues", "1", {})], [("issue:opened", {})])
    assert (event.source_session_id, event.cause, event.depth, event.project) == (None, None, 0, "/p")
