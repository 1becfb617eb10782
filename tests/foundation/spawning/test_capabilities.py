"""What a session is offered by the store and the router above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from amplifier_core.testing import MemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.background.partial_store import complete_store
from amplifier_foundation.events import EventRouter
from amplifier_foundation.paths import project_of
from amplifier_foundation.sessions.session_storage import SessionStorageAdapter
from amplifier_foundation.spawning.agents import AgentSpawner
from amplifier_foundation.spawning.own_loops import Fence, FencedStore

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import DurableStore, SessionStore


def _offered(store: Any, router: EventRouter | None, folder: Path, cause: TriggerEvent | None = None) -> dict[str, Any]:
    spawner = AgentSpawner(cast("Any", None), cast("SessionStore", store), router, working_dir=str(folder))
    return spawner.capabilities_of("s", cause)


async def test_a_session_has_the_documents_of_its_project_and_continues_its_chain(tmp_path: Path) -> None:
    store = MemoryStore()
    router = EventRouter(store)
    cause = TriggerEvent(TriggerType.CUSTOM, "test", event_id="e0", depth=2)
    documents = _offered(store, router, tmp_path, cause)["documents"]
    async with router.subscribe(["issue:*"]) as heard:
        await documents.write([documents.change("issues", "1", {})], [("issue:opened", {})])
        event = await anext(aiter(heard))
    project = project_of(tmp_path)
    assert (documents.project, documents.session_id) == (project, "s")
    assert (event.source_session_id, event.cause, event.depth, event.project) == ("s", "e0", 2, project)


def test_only_a_store_with_documents_offers_them(tmp_path: Path) -> None:
    without = [None, SessionStorageAdapter(cast("Any", None))]
    assert ["documents" in _offered(store, EventRouter(), tmp_path) for store in without] == [False, False]
    fenced = FencedStore(cast("SessionStore", MemoryStore()), Fence("s", lambda *_: None))
    assert ["documents" in _offered(store, None, tmp_path) for store in (MemoryStore(), fenced)] == [True, True]


def test_a_fenced_store_is_one_with_an_inbox_also_where_a_protocol_asks_its_class_alone() -> None:
    fenced = FencedStore(cast("SessionStore", MemoryStore()), Fence("s", lambda *_: None))
    assert fenced.__class__ is MemoryStore
    assert complete_store(cast("DurableStore", fenced)) is fenced
