"""A stored session is resumed at the cost of its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.plugins import Plugins
from amplifier_core.storage import SessionRecord
from amplifier_core.testing import MemoryStore
from amplifier_core.transcript import Message
from amplifier_foundation import PreparedBundle, converse, spawn_bundle
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.sessions.stored_history import PAGE, StoredHistory, stored_transcript, turns_so_far

from ..conftest import playbook

MakeBundle = Callable[..., PreparedBundle]


class NotingStore(MemoryStore):
    """A store that notes which parts of histories were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_parts: list[tuple[int, int | None]] = []

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        self.read_parts.append((start, stop))
        return super().read_sync(session_id, start, stop)


def turns(count: int) -> list[Message]:
    return [
        message
        for number in range(count)
        for message in ({"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"})
    ]


async def long_session(store: MemoryStore, count: int, **fields: Any) -> SessionRecord:
    await store.create(SessionRecord("long", status="completed", turn_count=count, **fields))
    await store.append("long", turns(count), at=0)
    return await store.get("long")


async def test_any_part_of_a_history_is_what_a_list_would_give() -> None:
    store = NotingStore()
    record = await long_session(store, 400)
    whole, history = turns(400), StoredHistory(store, "long", record.message_count)
    assert len(history) == 800
    chance = random.Random(3)
    for _ in range(200):
        start, stop = chance.randrange(-900, 900), chance.randrange(-900, 900)
        step = chance.choice((1, 2, -1))
        assert history[start:stop:step] == whole[start:stop:step]
        position = chance.randrange(-800, 800)
        assert history[position] == whole[position]
    assert list(history) == whole
    assert sum((stop or 0) - start for start, stop in store.read_parts) == 800
    with pytest.raises(IndexError, match="message 800 of 800"):
        history[800]


async def test_a_resume_reads_the_last_page_and_nothing_before(
    make_bundle: MakeBundle, plugins: Plugins, tmp_path: Path
) -> None:
    store = NotingStore()
    bundle = make_bundle(
        providers=playbook(), session={"context": {"module": "context-simple", "config": {"max_tokens": 100}}}
    ).bundle
    record = await long_session(store, 50_000, project=str(tmp_path))
    turn = await converse(bundle, "and now?", store, plugins, resume=record)
    assert turn.output == "You said: and now?"
    assert turn.turn_count == 50_001
    assert (await store.get("long")).message_count == 100_002
    parts = sorted((start, stop or 0) for start, stop in store.read_parts)
    assert (
        sum(stop - start for start, stop in parts) <= 3 * PAGE
    )  # the end, over two pages, and whether it begins with instructions


async def test_a_session_that_was_killed_has_its_turns_counted(
    make_bundle: MakeBundle, plugins: Plugins, tmp_path: Path
) -> None:
    store = MemoryStore()
    await store.create(SessionRecord("killed", project=str(tmp_path)))
    await store.append("killed", [*turns(2), {"role": "user", "content": "third"}], at=0)
    record = await store.get("killed")
    assert (record.status, record.turn_count) == ("running", 0)
    assert turns_so_far(record, stored_transcript(store, record)) == 3
    turn = await converse(make_bundle(providers=playbook()).bundle, "fourth", store, plugins, resume=record)
    assert turn.turn_count == 4


async def test_calls_that_a_crash_cut_are_settled_at_the_end_only() -> None:
    store = MemoryStore()
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "tool": "write"}]}
    await long_session(store, 3)
    await store.append("long", [{"role": "user", "content": "go"}, call], at=6)
    transcript = stored_transcript(store, await store.get("long"))
    assert len(transcript) == 9
    assert (transcript[-1]["tool_call_id"], transcript[-1]["name"]) == ("c1", "write")


async def test_a_spawned_fork_does_not_go_on_with_what_the_provider_keeps_of_its_source(
    make_bundle: MakeBundle, parent: AmplifierSession
) -> None:
    store, child = MemoryStore(), make_bundle(providers=playbook())
    said = {"role": "assistant", "content": "a", "metadata": {"response_id": "r", "n": 1}}
    await store.create(SessionRecord("source", status="completed", turn_count=1))
    await store.append("source", [{"role": "user", "content": "q"}, said], at=0)
    fork = await fork_stored(store, await store.get("source"))
    result = await spawn_bundle(child, "", parent, session_id=fork.session_id, session_storage=store, resume=True)
    assert result.output == "a"
    transcript = stored_transcript(store, await store.get(fork.session_id))
    assert transcript[1]["metadata"] == {"n": 1}
