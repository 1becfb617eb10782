"""Check that the store keeps the contract, and denies having an inbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import amplifier_storage_jsonl
from amplifier_core.errors import InvalidSessionId, StoreUnavailable
from amplifier_core.plugins import Plugins
from amplifier_core.storage import Inbox, SessionRecord, SessionStore
from amplifier_core.testing.store_checks import SESSION_STORE_CHECKS
from amplifier_storage_jsonl import open_jsonl
from amplifier_storage_jsonl.store import JsonlStore

HOSTILE = [
    *("", ".", "..", "../up", "/etc/passwd", "a/b", "a\\b", "a\0b", "a b", "a.b", "-a", "_a", "é", "a\n", "\n", "~"),
    *("*", "?", "[a]", "a;b", "a'--", 'a"b', "a|b", "a&b", "a<b", "a>b", "a:b", "C:", "\\\\host\\share", "%2e%2e"),
    *("con", "CON", "prn", "AUX", "nul", "NUL", *(f"com{n}" for n in range(10)), *(f"LPT{n}" for n in range(10))),
    *("\u202e", "a\u200b", "\ud800", "a\x7f", "\x1b[2J", "\ufeffa", "\uff41", "a\u0301", "a\r", "\t"),
    *("$HOME", "a%00", "x" * 129, "x" * 10_000_000),
]  # fmt: skip


@pytest.mark.parametrize("check", SESSION_STORE_CHECKS, ids=lambda check: check.__name__)
async def test_the_store_keeps_the_contract(check: Callable[[JsonlStore], Awaitable[None]], store: JsonlStore) -> None:
    await check(store)


def test_the_store_is_registered_and_has_no_inbox() -> None:
    plugins = Plugins()
    plugins.register(amplifier_storage_jsonl)
    assert plugins.storages.get("storage-jsonl") is open_jsonl
    assert issubclass(JsonlStore, SessionStore)
    assert not issubclass(JsonlStore, Inbox)


async def test_no_hostile_id_reaches_a_path(store: JsonlStore, tmp_path: Path) -> None:
    assert len(HOSTILE) >= 64
    for session_id in HOSTILE:
        for attempt in (
            store.create(SessionRecord(session_id)),
            store.create(SessionRecord("fork", fork_of=session_id)),
            store.create(SessionRecord("child", parent_id=session_id)),
            store.append(session_id, [{}], at=0),
            store.update(session_id, name="x"),
            store.get(session_id),
            store.read(session_id),
            store.delete(session_id),
            store.materialize(session_id),
            store.examine(session_id),
            store.repair(session_id),
        ):
            with pytest.raises(InvalidSessionId):
                await attempt
        assert await store.find(session_id or "/") == []
    assert list(tmp_path.iterdir()) == []


async def test_a_closed_store_says_so(store: JsonlStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match=r"base: the store is closed\. Open it again to use it$"):
        await store.sessions()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await store.create(SessionRecord("s"))


@pytest.mark.parametrize("key", ["folder", "path"])
@pytest.mark.parametrize("path", ["", 7, "a\0b"])
def test_a_path_that_is_none_is_refused(key: str, path: object) -> None:
    with pytest.raises(ValueError, match=rf"storage-jsonl: {key}: .* is not the path of a folder\. Set it to where"):
        open_jsonl({key: path})


def test_where_the_folder_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^storage-jsonl: folder and path mean the same. Set one of them$"):
        open_jsonl({"folder": tmp_path, "path": tmp_path})
    with pytest.raises(ValueError, match="^storage-jsonl: neither folder nor path says where .* Set one of them$"):
        open_jsonl({"path": None})


async def test_the_data_folder_is_the_folder_that_holds_the_projects(tmp_path: Path) -> None:
    store = open_jsonl({"folder": str(tmp_path)})
    await store.create(SessionRecord("s", project="/work/app"))
    await store.close()
    assert (tmp_path / "projects" / "-work-app" / "sessions" / "s" / "metadata.json").is_file()


async def test_a_circle_that_somebody_made_by_hand_ends_the_walk_up(store: JsonlStore, base: Path) -> None:
    await store.create(SessionRecord("a", parent_id="b"))
    await store.create(SessionRecord("b"))
    [metadata] = base.glob("projects/*/sessions/b/metadata.json")
    metadata.write_text(metadata.read_text().replace('"parent_id": null', '"parent_id": "a"').rstrip())
    assert (await store.create(SessionRecord("c", parent_id="a"))).parent_id == "a"


async def test_sessions_without_a_project_are_listed_once(store: JsonlStore) -> None:
    await store.create(SessionRecord("a"))
    await store.create(SessionRecord("b", project="/work/app"))
    assert [record.session_id for record in await store.sessions(project="")] == ["a"]
