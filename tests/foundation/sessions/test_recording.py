"""When what is said becomes durable."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_core import AmplifierSession, SessionRecord
from amplifier_core.storage import DurableStore
from amplifier_foundation import SessionRecorder
from amplifier_foundation.sessions.usage import Usage, sum_usages
from tests.foundation.conftest import MakeBundle, playbook

RULES = [{"when": {"user": "^list"}, "call": {"tool": "glob", "input": {"pattern": "*"}}}]


@pytest.mark.parametrize(
    ("persistence", "seen", "after"),
    [(None, [1, 2, 3], 4), ("message", [1, 2, 3], 4), ("turn", [0, 0, 0], 4), ("end", [0, 0, 0], 0)],
)
async def test_a_bundle_says_when_what_is_said_is_stored(
    persistence: str | None, seen: list[int], after: int, store: DurableStore, make_bundle: MakeBundle
) -> None:
    section: dict[str, Any] = {"session": {"persistence": persistence}} if persistence else {}
    prepared = make_bundle(providers=playbook(RULES), tools=[{"module": "tool-filesystem"}], **section)
    session = await prepared.create_session(session_id="s")
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    recorder.attach()
    stored = await counts(session, store)
    try:
        await session.execute("list them")
        assert (stored, await length(store)) == (seen, after)
        assert await recorder.flush() == 4
    finally:
        await session.cleanup()
    assert await length(store) == 4


async def test_stored_messages_say_how_long_their_calls_took_and_what_they_used(
    store: DurableStore, make_bundle: MakeBundle
) -> None:
    prepared = make_bundle(providers=playbook(RULES), tools=[{"module": "tool-filesystem"}])
    session = await prepared.create_session(session_id="s")
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    recorder.attach()
    try:
        await session.execute("list them")
        await session.execute("and again")
        await recorder.flush()
    finally:
        await session.cleanup()
    stored = await store.read("s")
    about = [each["metadata"] for each in stored]
    assert [each["role"] for each in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert all("timestamp" in each for each in about)
    assert [{"duration", "model", "usage"} & each.keys() for each in about] == [
        set(),
        {"duration", "model", "usage"},
        {"duration"},
        {"duration", "model", "usage"},
        set(),
        {"duration", "model", "usage"},
    ]
    assert {each["model"] for each in about if "model" in each} == {"playbook/playbook"}
    total = sum_usages([Usage.from_dict(each["usage"]) for each in about if "usage" in each])
    assert (total.requests, total.cost_usd, total.input_tokens > 0) == (3, 0, True)


async def counts(session: AmplifierSession, store: DurableStore) -> list[int]:
    """Return a list that grows by the length of the stored history before each request and each tool call."""
    seen: list[int] = []

    async def look(event: str, data: dict[str, Any]) -> None:
        seen.append(await length(store))

    for event in ("provider:request", "tool:pre"):
        session.coordinator.hooks.register(event, look, 0, "look")
    return seen


async def length(store: DurableStore) -> int:
    return (await store.get("s")).message_count
