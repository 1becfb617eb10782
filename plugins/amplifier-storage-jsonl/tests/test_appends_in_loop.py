"""Append in the event loop what is short and waits for nobody; everything else goes to the thread."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from amplifier_core import disk_pace
from amplifier_core.disk_pace import SHORT
from amplifier_core.errors import SessionConflict, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import appending
from tests.forked_stores import check_fork

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_storage_jsonl.store import JsonlStore

    from .conftest import Start

TURN = [{"text": "x" * 1000}, {"text": "y" * 1000}]
RECORD = SessionRecord("s", project="/work/app")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each flush of a transcript ran in the thread of the tests; a busy machine makes none of them slow."""
    monkeypatch.setattr(disk_pace, "QUICK", 30.0)
    found: list[bool] = []
    flush = os.fdatasync

    def note(file: int) -> None:
        found.append(threading.current_thread() is threading.main_thread())
        flush(file)

    monkeypatch.setattr(os, "fdatasync", note)
    return found


async def test_a_known_session_is_continued_in_the_loop(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    await store.append("s", TURN, at=2)
    await store.append("s", [{"text": "x" * SHORT}], at=4)
    assert threads == [False, True, False]
    assert await store.read("s") == [*TURN, *TURN, {"text": "x" * SHORT}]


async def test_a_session_whose_files_were_closed_is_known(
    store: JsonlStore, threads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "_OPEN", 1)
    for name in ("s", "t"):
        await store.create(SessionRecord(name))
        await store.append(name, TURN, at=0)
    for name in ("s", "t", "s"):
        at = (await store.get(name)).message_count
        assert await store.append(name, TURN, at=at) == at + 2
    assert threads == [False, False, True, True, True]


async def test_a_slow_disk_is_waited_for_in_the_thread(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    store._writer._pace.note(60.0)
    await store.append("s", TURN, at=2)
    assert threads == [False, False]


async def test_the_loop_goes_on_while_another_process_holds_the_lock(
    store: JsonlStore, threads: list[bool], folder: Path
) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    lock = os.open(folder / ".lock", os.O_RDWR)  # as another process would: the lock belongs to the open file
    fcntl.flock(lock, fcntl.LOCK_EX)
    appending = asyncio.ensure_future(store.append("s", TURN, at=2))
    for _ in range(5):
        await asyncio.sleep(0)  # a loop that waited for the lock would never come back
    assert not appending.done()
    os.close(lock)
    assert await appending == 4
    assert threads == [False, False]


async def test_appends_keep_their_order_behind_those_of_the_thread(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    appends = [asyncio.ensure_future(store.append("s", TURN, at=2 * turn)) for turn in range(4)]
    assert await asyncio.gather(*appends) == [2, 4, 6, 8]
    assert threads == [False] * 4


async def test_a_conflict_and_a_closed_store_are_told_as_ever(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    with pytest.raises(SessionConflict, match="has 2 messages, not 7"):
        await store.append("s", TURN, at=7)
    last = asyncio.ensure_future(store.append("s", TURN, at=2))
    await asyncio.sleep(0)
    await store.close()
    assert await last == 4
    with pytest.raises(StoreUnavailable):
        await store.append("s", TURN, at=4)
    assert threads == [False, True]


async def test_writes_of_a_loop_keep_the_order_of_their_calls(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    long = [{"text": "x" * SHORT}]
    appends = store.append("s", TURN, at=2), store.append("s", long, at=4), store.append("s", TURN, at=5)
    assert await asyncio.gather(*appends, store.delete("s")) == [4, 5, 7, None]


async def test_only_the_first_of_several_appends_at_once_holds_up_the_loop(
    store: JsonlStore, threads: list[bool]
) -> None:
    names = [f"s{number}" for number in range(4)]
    for name in names:
        await store.create(SessionRecord(name))
        await store.append(name, TURN, at=0)
    threads.clear()
    assert await asyncio.gather(*(store.append(name, TURN, at=2) for name in names)) == [4] * 4
    assert threads == [True, False, False, False]
    assert await store.append("s0", TURN, at=4) == 6
    assert threads[-1]


@pytest.mark.parametrize("at", [0, 2])
async def test_a_loop_that_only_appends_holds_up_no_other_task(store: JsonlStore, threads: list[bool], at: int) -> None:
    """Whether they succeed or fail."""
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "of another task")
    with suppress(SessionConflict):
        await store.append("s", TURN, at=at)
    assert turns and threads == [False] + [True] * (at == 2)


async def test_a_cancelled_append_is_finished(store: JsonlStore, threads: list[bool]) -> None:
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    cancelled = asyncio.ensure_future(store.append("s", TURN, at=2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await store.append("s", TURN, at=4) == 6
    assert threads == [False, True, True]


async def test_a_transcript_that_another_tool_wrote_is_read_in_the_thread(
    store: JsonlStore, threads: list[bool], folder: Path
) -> None:
    """It is read whole, however long it is."""
    await store.create(RECORD)
    await store.append("s", TURN, at=0)
    with (folder / "transcript.jsonl").open("a") as transcript:
        transcript.write('{"text": "of another tool"}\n')
    assert await store.append("s", TURN, at=3) == 5
    assert threads == [False, False]


async def test_a_fork_of_the_process_writes_nothing(start: Start, base: Path) -> None:
    await check_fork(start, "open_jsonl", base)
