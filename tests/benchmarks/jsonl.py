"""Measure folders of JSON lines: one more turn beside the same bytes written by hand, forks, ends, lists."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl
from amplifier_storage_jsonl.folder import encode_document

from .measure import Row, awaited, called, in_turns
from .storing import (
    CALLS,
    LONG,
    LONGEST,
    MESSAGE,
    ROUNDS,
    SHORT,
    TURN,
    closing_store,
    forking,
    more_turns,
    next_turns,
    session,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amplifier_core.storage import SessionStore

    from .measure import Sample

MANY = 10_000
"""Sessions of a list."""
TAIL = 50
"""Messages that a context asks for."""

TURN_AT_MOST = 1.5  # goal: times the same bytes appended by hand, as durably
TURN_GROWTH_AT_MOST = 1.2  # goal: times one more turn of a short session
FORK_GROWTH_AT_MOST = 1.5  # goal: times the fork of a short session
LIST_AT_MOST = 1.5  # goal: times the same files read by hand
TAIL_GROWTH_AT_MOST = 1.5  # goal: times the whole of a session that has no more


async def turns() -> AsyncIterator[Row]:
    """Continue sessions that nobody has continued yet, and a long one."""
    async with _store() as (store, folder):
        shorts = [f"short-{number}" for number in range(CALLS * (ROUNDS + 1))]
        for name in shorts:
            await session(store, name, SHORT)
        await session(store, "long", LONG)
        with _by_hand(folder, await _bytes_of_a_turn(store, folder)) as by_hand:
            samples = next_turns(store, iter(shorts)), more_turns(store, "long"), by_hand
            short, long, limit = await in_turns(*samples, rounds=ROUNDS)
    yield Row(f"one more turn of 2 KB, {SHORT} messages / a raw append", short, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn of 2 KB, {LONG:,} messages / a raw append", long, limit, at_most_ratio=TURN_AT_MOST)
    yield Row(f"one more turn, {LONG:,} / {SHORT} messages", long, short, at_most_ratio=TURN_GROWTH_AT_MOST)


async def forks() -> AsyncIterator[Row]:
    """Fork a short session and a long one."""
    async with _store() as (store, _):
        for name, messages in (("short", SHORT), ("long", LONGEST)):
            await session(store, name, messages)
        short, long = await in_turns(forking(store, "short"), forking(store, "long"), rounds=ROUNDS)
    yield Row(f"durable fork, {LONGEST:,} / {SHORT} messages", long, short, at_most_ratio=FORK_GROWTH_AT_MOST)


async def tails() -> AsyncIterator[Row]:
    """Read the end of a short session and of a long one."""
    async with _store() as (store, _):
        for name, messages in (("short", TAIL), ("long", LONGEST)):
            await session(store, name, messages)
        ends = [called(lambda: store.read_sync("short", 0, TAIL), CALLS)]
        ends.append(called(lambda: store.read_sync("long", LONGEST - TAIL, LONGEST), CALLS))
        short, long = await in_turns(*ends, rounds=ROUNDS)
    what = f"the last {TAIL} messages, of {LONGEST:,} / of {TAIL}"
    yield Row(what, long, short, at_most_ratio=TAIL_GROWTH_AT_MOST)


async def lists() -> AsyncIterator[Row]:
    """List sessions with a newly opened store, as each command does."""
    async with _store() as (store, folder):
        await _fill(store, folder)

        async def listed(limit: int | None = None) -> None:
            async with closing_store(open_jsonl({"path": folder})) as new:
                assert len(await new.sessions(limit=limit)) == (limit or MANY)

        samples = awaited(listed, 1), awaited(lambda: listed(20), 1), called(lambda: _listed_by_hand(folder), 1)
        whole, page, limit = await in_turns(*samples, rounds=9)
    by_hand = "their files, read and parsed by hand"
    yield Row(f"list of {MANY:,} sessions / {by_hand}", whole, limit, at_most_ratio=LIST_AT_MOST)
    yield Row(f"the newest 20 of {MANY:,} sessions / {by_hand}", page, limit, at_most_ratio=LIST_AT_MOST)


PARTS = (turns, forks, tails, lists)

# sessions and samples


@asynccontextmanager
async def _store() -> AsyncIterator[tuple[SessionStore, Path]]:
    """Open a store in a folder of its own."""
    with TemporaryDirectory(prefix="amplifier-bench-") as folder:
        async with closing_store(open_jsonl({"path": folder})) as store:
            yield store, Path(folder)


async def _fill(store: SessionStore, folder: Path) -> None:
    """Make `MANY` sessions after their turn: one by the store, the others as copies of its folder."""
    plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}, "tools": ["x" * 200]}
    await store.create(SessionRecord("s0", project="/p0", config=plan))
    await store.append("s0", [MESSAGE], at=0)
    await store.update("s0", status="idle", turn_count=1)
    [first] = folder.glob("projects/*/sessions/s0")
    found = (first / "transcript.jsonl").stat()
    document = json.loads((first / "metadata.json").read_bytes())
    for number in range(1, MANY):
        project = f"/p{number % 2}"
        copy = folder / "projects" / project.replace("/", "-") / "sessions" / f"s{number}"
        shutil.copytree(first, copy)
        os.utime(copy / "transcript.jsonl", ns=(found.st_atime_ns, found.st_mtime_ns))
        changed = {**document, "session_id": copy.name, "working_dir": project}
        (copy / "metadata.json").write_bytes(encode_document(changed))


def _listed_by_hand(folder: Path) -> None:
    """Read the metadata of each session, look at its transcript, and sort by the time of the last change."""
    found = []
    for sessions in folder.glob("projects/*/sessions"):
        for name in os.listdir(sessions):  # noqa: PTH208  # ten thousand names, and no path objects
            with open(f"{sessions}/{name}/metadata.json", "rb") as file:  # noqa: PTH123
                document = json.loads(file.read())
            changed = os.stat(f"{sessions}/{name}/transcript.jsonl").st_mtime  # noqa: PTH116
            found.append((datetime.fromisoformat(document["updated"]), changed, document))
    found.sort(key=lambda each: each[:2], reverse=True)
    assert len(found) == MANY


async def _bytes_of_a_turn(store: SessionStore, folder: Path) -> bytes:
    """Return the bytes of one turn."""
    await store.create(SessionRecord("turn"))
    await store.append("turn", TURN, at=0)
    [transcript] = folder.glob("projects/*/sessions/turn/transcript.jsonl")
    return transcript.read_bytes()


@contextmanager
def _by_hand(folder: Path, data: bytes) -> Iterator[Sample]:
    """Append the same bytes to an open file beside the store, and wait for the disk."""
    file = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append() -> None:
        os.write(file, data)
        os.fdatasync(file)

    try:
        yield called(append, CALLS)
    finally:
        os.close(file)
