"""Folders of JSON lines under faults: killed at each system call, cut, flipped, out of space, on a disk that fails.

`make test` takes a small share; all of it: `STRIDE=1 FLIPS=2000 CUTS=4096`. `SEED` chooses other bits.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import SessionConflict, SessionNotFound, StoreDamaged
from amplifier_core.storage import Finding, SessionRecord
from amplifier_storage_jsonl import open_jsonl
from amplifier_storage_jsonl.store import JsonlStore

from .faults import (
    CUTS,
    FAIL_SYNC,
    FAIL_WRITE,
    FAILS_AND_WORKS_AGAIN,
    FLIPS,
    KILL,
    KILLED_AT_EACH_CALL,
    SEED,
    STRIDE,
    TEAR,
    two_processes,
    under,
)

JSONL = """
from amplifier_storage_jsonl import open_jsonl
open_store = lambda: open_jsonl({"folder": place})
"""
TURNS = 8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def folder(place: Path) -> Path:
    """Where the session `s` lies."""
    return place / "projects" / "-p" / "sessions" / "s"


# killed


@pytest.mark.parametrize("turns", [0, 1, 20], ids=["the first turn", "the second turn", "a later turn"])
@pytest.mark.parametrize("mode", [KILL, TEAR], ids=["before each call", "in the middle of each write"])
def test_a_turn_killed_at_any_call_is_there_whole_when_it_was_acknowledged(
    mode: int, turns: int, shim: Path, place: Path
) -> None:
    calls = int(under(shim, JSONL + KILLED_AT_EACH_CALL, place, mode, turns, STRIDE))
    assert calls > 6


# a disk that fails


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (FAIL_WRITE, "cannot be written (No space left on device); what was acknowledged is kept. Free some space"),
        (FAIL_SYNC, "cannot be used (Input/output error)"),
    ],
    ids=["no space", "no fsync"],
)
def test_a_disk_that_fails_loses_nothing_acknowledged_and_is_used_again(
    mode: int, said: str, shim: Path, place: Path
) -> None:
    output = under(shim, JSONL + FAILS_AND_WORKS_AGAIN, place, mode)
    assert output.count(f"{place}/projects/-/sessions/s: {said}") == 3
    messages = open_jsonl({"folder": place}).read_sync("s")
    assert messages == [{"n": n} for n in range(len(messages))]
    assert len(messages) == 4
    assert [path.name for path in place.rglob("*.cut-*")] == [], "what was refused was taken back"


@pytest.mark.parametrize("mode", [FAIL_WRITE, FAIL_SYNC], ids=["no space", "no fsync"])
async def test_a_disk_that_fails_ends_a_command_with_75_and_the_path(
    mode: int, shim: Path, project: Path, place: Path
) -> None:
    store = open_jsonl({"folder": place})
    await store.create(SessionRecord("s", name="before", project=str(project)))
    await store.close()
    done = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", "session", "rename", "s", "after"],
        cwd=project,
        env={
            **os.environ,
            "AMPLIFIER_HOME": str(place),
            "AMPLIFIER_STORAGE": "storage-jsonl",
            "LD_PRELOAD": str(shim),
            "AT": f"{mode}:100:{place}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (75, 1), done.stderr
    assert f"{place}/projects/" in done.stderr
    again = open_jsonl({"folder": place})
    assert (await again.get("s")).name == "before"
    await again.update("s", name="after")
    await again.close()


# cut and flipped


async def _filled(place: Path) -> list[dict[str, Any]]:
    """Make a session of turns, and a fork, and return the messages of the session."""
    store = open_jsonl({"folder": place})
    await store.create(SessionRecord("s", name="kept", project="/p", config={"a": 1}))
    turns = [[{"n": n, "of": turn, "text": "né" * 100} for n in range(3)] for turn in range(TURNS)]
    for turn, messages in enumerate(turns):
        await store.append("s", messages, at=turn * 3)
    await store.create(SessionRecord("fork", project="/p", fork_of="s", fork_at=TURNS * 3 - 1))
    await store.append("fork", [{"own": 1}], at=TURNS * 3 - 1)
    await store.update("s", turn_count=TURNS)
    await store.close()
    return [message for messages in turns for message in messages]


async def _seen(store: JsonlStore, end: int) -> dict[str, Any]:
    """Return what the store says of the session, asked in every way."""
    return {
        "all": await store.read("s"),
        "tail": store.read_sync("s", end - 2, end),
        "page": store.read_sync("s", 7, 9),
        "fork": await store.read("fork"),
        "record": await store.get("s"),
        "listed": next(record for record in await store.sessions() if record.session_id == "s"),
        "findings": await store.examine("s"),
    }


async def test_a_flipped_bit_is_said_or_harmless(place: Path, folder: Path) -> None:
    messages = await _filled(place)
    names = ("transcript.jsonl", "metadata.json", ".lock")
    files = {folder / name: (folder / name).read_bytes() for name in names}
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    store = open_jsonl({"folder": place})
    expected = await _seen(store, len(messages))
    assert expected["all"] == messages
    chosen, said = random.Random(SEED), 0
    for _ in range(FLIPS):
        path = chosen.choice(sorted(files))
        said += await _is_said(store, path, files[path], chosen.randrange(len(files[path]) * 8), expected)
    assert FLIPS / 3 < said < FLIPS, "a flipped bit of the mark costs nothing"
    await store.close()


async def _is_said(store: JsonlStore, path: Path, whole: bytes, bit: int, expected: dict[str, Any]) -> bool:
    """Flip a bit and mend it; return whether damage was said, and assert that what was not said did no harm."""
    before = path.stat()
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    path.write_bytes(flipped)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    end = len(expected["all"])
    said = False
    for what in expected:
        try:
            found = (await _seen_alone(store, what, end))
        except StoreDamaged as error:
            assert str(path.parent) in str(error)
            said = True
        else:
            if what == "findings" and found:
                said = True
            elif what == "listed" and found.error:
                assert str(path) in found.error
            else:
                assert found == expected[what], (what, path.name, bit)
    if path.name == "transcript.jsonl":
        assert said, "each byte of a transcript counts"
    path.write_bytes(whole)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return said
