"""The documents of a session in a process of its own: those of its project, whatever it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import SessionRecord
from amplifier_core.documents import DocumentChange
from amplifier_core.errors import DocumentConflict, SessionConflict
from amplifier_core.hook_data import SpawnRequest
from amplifier_core.testing import MemoryStore
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.events import EventRouter
from amplifier_foundation.isolation.error_forms import read_error, write_error
from amplifier_foundation.isolation.record_forms import write_value
from amplifier_foundation.isolation.serving import Services
from amplifier_foundation.spawning.requests import spawn_of

from .conftest import EVERY_WAY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_foundation.isolation.runner import SubprocessRunner

    Plan = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow

PLAN = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}
WORK = """
from amplifier_core.errors import DocumentConflict
documents = coordinator.get_capability('documents')
first = documents.change('issues', '1\\udce9', {'title': 'Größe 🙂', 'state': 'open'}, searched=('title',))
logged = await documents.write([first], [('issue:opened', {'by': coordinator.session_id})])
found = await documents.get('issues', '1\\udce9')
missing = await documents.get('issues', '2')
[match] = await documents.search('issues', 'GROSSE', limit=5)
listed = await documents.find('issues', where={'state': ['open']}, prefix='1', newest=True, limit=5)
try:
    await documents.write([documents.change('issues', '2', {}), first], [('issue:opened', {})])
except DocumentConflict as conflict:
    refused = conflict.collection, conflict.key == found.key, conflict.__class__ is DocumentConflict
same = listed == [found] == [match.document] and match.snippet == 'Größe 🙂'
same = same and found.version == 1 and missing is None and found.updated.tzinfo is not None
return documents.project, documents.session_id, same, refused, [event.sequence for event in logged]
"""


@EVERY_WAY
async def test_a_process_changes_the_documents_of_its_project(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    store = MemoryStore()
    result = await run_session_in_subprocess(plan(WORK), "Go", "p", tmp_path, "s", store=store, runner=runner)
    project = str(tmp_path.resolve())
    assert result.output == f"It says: {(project, 's', True, ('issues', True, True), [1])}"
    [document] = await store.documents(project, "issues")
    assert (document.key, document.data) == ("1\udce9", {"title": "Größe 🙂", "state": "open"})
    [event] = await store.events()
    assert (event.name, event.data, event.source_session_id, event.project) == (
        "issue:opened",
        {"by": "s"},
        "s",
        project,
    )


async def test_a_process_changes_no_document_of_another_project(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = """
documents = coordinator.get_capability('documents')
refused = []
for attempt in (
    lambda: documents.write([type(documents.change('c', 'k', {}))('/other', 'c', 'k', {})]),
    lambda: documents._store.write_documents([type(documents.change('c', 'k', {}))('/other', 'c', 'k', {})]),
    lambda: documents._store.document('/other', 'c', 'k'),
    lambda: documents._store.documents('/other', 'c'),
    lambda: documents._store.search_documents('/other', 'c', 'secret'),
):
    try:
        refused.append(await attempt())
    except ValueError:
        refused.append('refused')
return refused
"""
    store = MemoryStore()
    await store.write_documents([DocumentChange("/other", "c", "secret", {})])
    result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, "s", store=store, runner=runner)
    assert result.output == f"It says: {['refused'] * 5}"
    assert [each.key for each in await store.documents("/other", "c")] == ["secret"]


class Small:
    """Keeps whole sessions, and nothing else."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def save(self, session_id: str, transcript: list[Any], metadata: dict[str, Any]) -> None:
        self.kept[session_id] = transcript, metadata

    def load(self, session_id: str) -> Any:
        return self.kept[session_id]

    def exists(self, session_id: str) -> bool:
        return session_id in self.kept


async def test_a_process_has_no_documents_where_the_store_above_has_none(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    from amplifier_foundation.sessions.session_storage import SessionStorageAdapter

    code = "return coordinator.get_capability('documents')"
    for store in (None, SessionStorageAdapter(Small())):
        result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, store=store, runner=runner)
        assert result.output == "It says: None"
    services = Services(
        spawn_of(SpawnRequest("own", "above", "", "Go", PLAN, "/p"), store=SessionStorageAdapter(Small()))
    )
    with pytest.raises(LookupError, match="keeps no documents"):
        await services.serve("document", {"project": "/p", "collection": "c", "key": "k"})


async def test_the_parent_says_where_the_events_of_documents_come_from() -> None:
    store = MemoryStore()
    for session_id, parent in (("above", None), ("own", "above"), ("below", "own"), ("strange", "above")):
        await store.create(SessionRecord(session_id, parent_id=parent))
    spawn = spawn_of(SpawnRequest("own", "above", "", "Go", PLAN, "/p"), store=store)
    spawn.router = EventRouter(store)
    spawn.cause = TriggerEvent(TriggerType.CUSTOM, "test", event_id="e0", depth=3)
    services = Services(spawn)
    change = write_value(DocumentChange("/p", "issues", "1", {"by": "below"}))
    with pytest.raises(SessionConflict, match="is not below this one"):
        await services.serve("write_documents", {"changes": [change], "events": [], "session_id": "strange"})
    async with spawn.router.subscribe(["*"]) as heard:
        told = {"changes": [change], "events": [["issue:opened", {"depth": 0}]], "session_id": "below"}
        [written] = await services.serve("write_documents", told)
        event = await anext(aiter(heard))
    assert (event.event_id, event.sequence) == (written["event_id"], 1)
    assert (event.source_session_id, event.cause, event.depth, event.project) == ("below", "e0", 3, "/p")
    with pytest.raises(DocumentConflict):
        await services.serve("write_documents", {"changes": [change], "events": [], "session_id": None})


def test_a_conflict_crosses_as_itself() -> None:
    error = read_error(write_error(DocumentConflict("issues", "1")))
    assert isinstance(error, DocumentConflict)
    assert (error.collection, error.key, str(error)) == ("issues", "1", str(DocumentConflict("issues", "1")))
