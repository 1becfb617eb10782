"""The store keeps the contract, and says what it is not."""

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
            store.mend(session_id),
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


@pytest.mark.parametrize("path", [None, "", 7, "a\0b"])
def test_a_path_that_is_none_is_refused(path: object) -> None:
    with pytest.raises(ValueError, match=r"storage-jsonl: path: .* is not the path of a folder\. Set it to where"):
        open_jsonl({"path": path})
