"""Damage folders of JSON lines: kill at each system call, cut, flip bits, run out of space, fail the disk.

`make test` takes a small share, `make faults` all of it. `SEED` chooses other bits.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import SessionConflict, StoreDamaged
from amplifier_core.storage import SessionRecord
from amplifier_storage_jsonl import open_jsonl

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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_storage_jsonl.store import JsonlStore

pytestmark = pytest.mark.slow

JSONL = """
from amplifier_storage_jsonl import open_jsonl
open_store = lambda: open_jsonl({"folder": place})
"""
TURNS = 8
COUNT = TURNS * 3
"""Messages of the session."""


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
    await store.create(SessionRecord("fork", project="/p", fork_of="s", fork_at=COUNT - 1))
    await store.append("fork", [{"own": 1}], at=COUNT - 1)
    await store.update("s", turn_count=TURNS)
    await store.close()
    return [message for messages in turns for message in messages]


WAYS: dict[str, Callable[[JsonlStore], Awaitable[Any]]] = {
    "history": lambda store: store.read("s"),
    "end": lambda store: store.read("s", COUNT - 2, COUNT),
    "page": lambda store: store.read("s", 7, 9),
    "fork": lambda store: store.read("fork"),
    "record": lambda store: store.get("s"),
    "findings": lambda store: store.examine("s"),
    "error of the row": lambda store: _error_of_the_row(store),
}
"""What can be asked of the session, in every way."""


async def _error_of_the_row(store: JsonlStore) -> str | None:
    [record] = [record for record in await store.sessions() if record.session_id == "s"]
    return record.error


async def _is_said(store: JsonlStore, folder: Path, expected: dict[str, Any]) -> bool:
    """Return whether damage is said, by whoever comes across it; assert that nobody gives another answer."""
    said = False
    for what, ask in WAYS.items():
        try:
            answer = await ask(store)
        except StoreDamaged as error:
            assert str(folder) in str(error)
            said = True
            continue
        if answer != expected[what]:
            assert what in ("findings", "error of the row"), (what, answer)
            said = True
    return said


async def _as_it_was(store: JsonlStore) -> dict[str, Any]:
    expected = {what: await ask(store) for what, ask in WAYS.items()}
    assert (expected["findings"], expected["error of the row"]) == ([], None)
    return expected


def _put(path: Path, data: bytes, before: os.stat_result) -> None:
    """Change a file behind everybody's back: as old as before."""
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


async def test_a_flipped_bit_is_said_or_harmless(place: Path, folder: Path) -> None:
    messages = await _filled(place)
    files = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    assert [path.name for path in files] == [".lock", "metadata.json", "transcript.jsonl"]
    expected = await _as_it_was(open_jsonl({"folder": place}))
    assert expected["history"] == messages
    chosen, said = random.Random(SEED), {path.name: 0 for path in files}
    for number in range(FLIPS):
        path = list(files)[number % 3]
        flipped, bit, before = bytearray(files[path]), chosen.randrange(len(files[path]) * 8), path.stat()
        flipped[bit // 8] ^= 1 << bit % 8
        _put(path, bytes(flipped), before)
        said[path.name] += await _is_said(open_jsonl({"folder": place}), folder, expected)
        _put(path, files[path], before)
    assert said[".lock"] == 0, "without its mark a transcript counts for itself"
    for name in ("metadata.json", "transcript.jsonl"):
        assert said[name] > FLIPS // 3 * 0.95, "a tab that became another blank does no harm"


async def test_a_transcript_cut_within_its_last_bytes_is_said_and_what_is_left_is_read(
    place: Path, folder: Path
) -> None:
    messages = await _filled(place)
    store, transcript = open_jsonl({"folder": place}), folder / "transcript.jsonl"
    expected, whole, before = await _as_it_was(store), transcript.read_bytes(), transcript.stat()
    for missing in range(1, 4097, 4096 // CUTS):
        _put(transcript, whole[:-missing], before)
        assert await _is_said(store, folder, expected), f"{missing} bytes are missing"
        left = whole[:-missing].count(b"\n") + whole[:-missing].rstrip(b" \t").endswith(b"}")
        assert await store.read("s", 0, left) == messages[:left], f"{missing} bytes are missing"
        if left < COUNT:
            with pytest.raises(StoreDamaged, match=rf"it has {left} messages of {COUNT}"):
                await store.append("s", [{"n": left}], at=left)
            assert transcript.read_bytes() == whole[:-missing]
    await store.close()


@pytest.mark.parametrize("name", ["metadata.json", ".lock"])
async def test_another_file_cut_anywhere_is_said_or_harmless(name: str, place: Path, folder: Path) -> None:
    await _filled(place)
    store, path = open_jsonl({"folder": place}), folder / name
    expected, whole, before = await _as_it_was(store), path.read_bytes(), path.stat()
    for length in range(0, len(whole) - 1, 8):
        _put(path, whole[:length], before)
        is_cut = name == "metadata.json" and length < len(whole.rstrip())  # before the blanks of the checksum
        assert await _is_said(store, folder, expected) is is_cut, length
    await store.close()


# two processes


async def test_of_two_processes_on_one_session_one_wins_each_turn(place: Path) -> None:
    store = open_jsonl({"folder": place})
    await store.create(SessionRecord("s"))
    won = two_processes(JSONL, place)
    messages = await store.read("s")
    turns = [messages[at : at + 3] for at in range(0, len(messages), 3)]
    assert (sum(won), len(messages)) == (20, 60)
    for turn in turns:
        assert [message["n"] for message in turn] == [0, 1, 2]
        assert len({message["by"] for message in turn}) == 1
    with pytest.raises(SessionConflict, match="has 60 messages, not 57: somebody else wrote it"):
        await store.append("s", [], at=57)
    await store.close()
