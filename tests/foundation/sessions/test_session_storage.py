"""A small storage where a store is wanted, and a store where a small storage is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.errors import SessionConflict, StoreError, StoreUnavailable
from amplifier_core.storage import SessionRecord, SessionStore
from amplifier_core.testing import MemoryStore
from amplifier_core.testing.store_checks import SESSION_STORE_CHECKS
from amplifier_foundation import spawn_bundle
from amplifier_foundation.sessions.session_storage import SessionStorageAdapter, as_session_store

from ..conftest import MakeBundle


class Files:
    """A small storage as somebody would write it: one JSON file a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        (self.folder / f"{session_id}.json").write_text(json.dumps([transcript, metadata]))

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        transcript, metadata = json.loads((self.folder / f"{session_id}.json").read_text())
        return transcript, metadata

    def exists(self, session_id: str) -> bool:
        return (self.folder / f"{session_id}.json").exists()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("check", SESSION_STORE_CHECKS, ids=lambda check: check.__name__)
async def test_the_adapter_keeps_the_contract(check: Callable[[SessionStore], Awaitable[None]], files: Files) -> None:
    await check(SessionStorageAdapter(files))


def test_what_is_a_store_already_is_used_as_it_is(files: Files) -> None:
    store = MemoryStore()
    assert as_session_store(store) is store
    adapter = as_session_store(files)
    assert isinstance(adapter, SessionStorageAdapter) and isinstance(adapter, SessionStore)


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


NO_HISTORY = "its load must return a list of messages, all of them dicts, and a dict of metadata"


@pytest.mark.parametrize(
    ("method", "faulty", "kind", "told"),
    [
        ("load", failing(RuntimeError("boom")), StoreError, "its load failed: RuntimeError: boom (FILE:"),
        ("load", failing(SystemExit(4)), StoreError, "it called exit(4), which a module may not do"),
        ("load", lambda session_id: None, StoreError, NO_HISTORY),
        ("load", lambda session_id: ([5], {}), StoreError, NO_HISTORY),
        ("load", lambda session_id: ([], None), StoreError, NO_HISTORY),
        ("save", failing(OSError(28, "No space left")), StoreUnavailable, "its save failed: OSError: [Errno 28] No"),
        ("list_sessions", lambda: None, StoreError, "its list_sessions must return ids, not NoneType"),
        ("list_sessions", failing(RuntimeError("boom")), StoreError, "its list_sessions failed: RuntimeError: boom"),
    ],
)
async def test_a_faulty_storage_is_named_with_its_method(
    files: Files, method: str, faulty: Any, kind: type[Exception], told: str
) -> None:
    await SessionStorageAdapter(files).create(SessionRecord("s"))
    setattr(files, method, faulty)
    store = SessionStorageAdapter(files)
    with pytest.raises(kind) as failure:
        await (store.update("s", name="n") if method != "list_sessions" else store.sessions())
    said = str(failure.value).replace(__file__, "FILE")
    assert said.startswith(f"{__name__}.Files: ") and told in said
    assert type(failure.value) is kind


def test_what_is_no_storage_is_refused_with_what_it_lacks(files: Files) -> None:
    class SavesAlone:
        save = files.save

    class Async(Files):
        async def load(self, session_id: str) -> Any:
            return super().load(session_id)

    with pytest.raises(TypeError, match="SavesAlone is no storage: it needs the methods save, load and exists"):
        as_session_store(cast("SessionStore", SavesAlone()))
    with pytest.raises(TypeError, match=r"Async\.load must not be async: it is called in a thread"):
        as_session_store(Async(files.folder))


async def test_a_spawned_session_is_kept_in_a_small_storage(
    make_bundle: MakeBundle, parent: AmplifierSession, files: Files
) -> None:
    result = await spawn_bundle(make_bundle(), "hello", parent, session_id="small-1", session_storage=files)
    transcript, metadata = files.load("small-1")
    assert [message["content"] for message in transcript] == ["hello", [{"type": "text", "text": result.output}]]
    assert (metadata["status"], metadata["parent_id"]) == ("completed", parent.session_id)


async def test_a_session_that_another_program_saved_goes_on(files: Files) -> None:
    files.save(
        "theirs", [{"role": "user", "content": "hi"}], {"name": "n", "colour": "red", "created": "2026-01-02T03:04:05Z"}
    )
    store = SessionStorageAdapter(files)
    record = await store.get("theirs")
    assert (record.name, record.status, record.message_count) == ("n", "idle", 1)
    await store.append("theirs", [{"role": "assistant", "content": "yes"}], at=1)
    transcript, metadata = files.load("theirs")
    assert len(transcript) == 2
    assert metadata["colour"] == "red"


async def test_a_session_that_another_adapter_changed_is_a_conflict(files: Files) -> None:
    one, other = SessionStorageAdapter(files), SessionStorageAdapter(files)
    await one.create(SessionRecord("s"))
    await other.append("s", [{"n": 0}], at=0)
    with pytest.raises(SessionConflict, match="has 1 messages, not 0"):
        await one.append("s", [{"n": 1}], at=0)
    assert await one.read("s") == [{"n": 0}]


async def test_a_session_of_another_process_is_found_by_its_whole_id(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    class Small(Files):
        """A class that no other test has."""

    small = Small(files.folder)
    await SessionStorageAdapter(small).create(SessionRecord("small-1", project="/p"))
    later = SessionStorageAdapter(small)
    assert await later.find("small") == []
    assert [await later.sessions(project="/p"), await SessionStorageAdapter(small).sessions()] == [[], []]
    assert caplog.messages == [
        "Small cannot list its sessions: others than those of this process are found by their whole id alone"
    ]
    assert [record.session_id for record in await later.find("small-1")] == ["small-1"]
    assert [await later.find("small-2"), await later.find("../small-1")] == [[], []]
    assert [record.session_id for record in await later.find("small")] == ["small-1"]


async def test_a_storage_that_lists_its_sessions_is_known_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Listing(Files):
        def list_sessions(self) -> list[str]:
            return [path.stem for path in self.folder.glob("*.json")]

    await SessionStorageAdapter(Listing(tmp_path)).create(SessionRecord("small-1", project="/p"))
    later = SessionStorageAdapter(Listing(tmp_path))
    assert [record.session_id for record in await later.sessions(project="/p")] == ["small-1"]
    assert [record.session_id for record in await later.find("smal")] == ["small-1"]
    assert caplog.messages == []


async def test_the_name_of_the_bundle_is_read_as_the_seed_writes_it(files: Files) -> None:
    files.save("theirs", [], {"session_id": "theirs", "parent_id": None, "bundle_name": "coder", "turn_count": 3})
    record = await SessionStorageAdapter(files).get("theirs")
    assert (record.bundle, record.turn_count) == ("coder", 3)
