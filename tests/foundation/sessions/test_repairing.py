"""What is wrong with a stored session, and what mends it."""

from __future__ import annotations

from typing import Any

from amplifier_core import SessionRecord
from amplifier_core.storage import DurableStore, Finding
from amplifier_foundation.sessions.repairing import examine, repair

CALLS: list[dict[str, Any]] = [{"id": each, "tool": each, "arguments": {}} for each in ("a", "b")]
CUT: list[dict[str, Any]] = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": "r"},
]


class Damaged:
    """A store whose session cannot be read before it is mended."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self.damage = [Finding("bad_message", "message is not what was written", "cut the history before it", 2)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def examine(self, session_id: str) -> list[Finding]:
        return self.damage

    async def repair(self, session_id: str) -> list[Finding]:
        found, self.damage = self.damage, []
        return found

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        assert not self.damage
        return await self._store.read(session_id, start, stop)


async def cut(store: DurableStore, **fields: Any) -> None:
    await store.create(SessionRecord("cut", **{"status": "interrupted", **fields}))
    await store.append("cut", CUT, at=0)


async def test_a_call_without_a_result_is_recorded_as_interrupted(store: DurableStore) -> None:
    await cut(store)
    [finding] = await examine(store, "cut")
    assert (finding.kind, finding.position, finding.message) == ("unpaired_call", 1, "the call of b has no result")
    assert await store.read("cut") == CUT
    assert await repair(store, "cut") == [finding]
    assert [message.get("tool_call_id") for message in await store.read("cut", 2)] == ["a", "b"]
    assert await examine(store, "cut") == await repair(store, "cut") == []


async def test_a_call_of_a_session_that_runs_is_left_alone(store: DurableStore) -> None:
    await cut(store, status="running")
    assert await examine(store, "cut") == await repair(store, "cut") == []
    assert await store.read("cut") == CUT


async def test_what_the_store_finds_comes_first_and_is_mended_first(store: DurableStore) -> None:
    await cut(store)
    damaged: Any = Damaged(store)
    assert [each.kind for each in await examine(damaged, "cut")] == ["bad_message"]
    assert [each.kind for each in await repair(damaged, "cut")] == ["bad_message", "unpaired_call"]
