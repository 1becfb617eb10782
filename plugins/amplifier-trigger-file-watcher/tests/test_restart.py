"""What a restarted file watcher finds, and what it never repeats."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_file_watcher import FileChangeTrigger
from amplifier_trigger_file_watcher.manifest import UNREAD, UNSURE, Fingerprint, Manifest, fingerprint
from amplifier_trigger_file_watcher.state import Saved, carriers, decode, encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Watching = Callable[..., AbstractAsyncContextManager[Any]]

LONG_AGO = (1_000_000_000, 1_000_000_000)


async def collect(folder: Path, state: Mapping[str, Any], count: int) -> list[TriggerEvent]:
    """Return the first events of a watcher that starts with `state`, and is then killed."""
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=folder, state=state))
    trigger.configure({"debounce_ms": 20})
    async with aclosing(cast("AsyncGenerator[TriggerEvent]", trigger.watch())) as stream:
        return [await asyncio.wait_for(anext(stream), 10) for _ in range(count)]


def keys(events: list[TriggerEvent]) -> list[str | None]:
    return [event.dedupe_key for event in events]


async def test_what_changed_while_nothing_watched_fires_at_start(watching: Watching, tmp_path: Path) -> None:
    for name in ("gone.txt", "changed.txt", "same.txt"):
        (tmp_path / name).write_text("x")
    async with watching() as watcher:
        pass
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "changed.txt").write_text("y")
    (tmp_path / "new.txt").write_text("x")
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == [
            ("modified", "changed.txt"),
            ("deleted", "gone.txt"),
            ("created", "new.txt"),
        ]


async def test_a_change_that_fired_does_not_fire_after_a_restart(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        (tmp_path / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == []


async def test_a_change_found_twice_has_one_key(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        pass
    for name in "abc":
        (tmp_path / name).write_text("x")
    assert keys(await collect(tmp_path, watcher.state, 1)) == keys(await collect(tmp_path, watcher.state, 1))


async def test_a_change_back_to_an_older_content_has_a_new_key(watching: Watching, tmp_path: Path) -> None:
    seen = []
    async with watching() as watcher:
        for text in ("one", "two", "one", "two"):
            (tmp_path / "a.txt").write_text(text)
            seen.append((await watcher.next()).dedupe_key)
    (tmp_path / "a.txt").write_text("one")
    seen += keys(await collect(tmp_path, watcher.state, 1))
    assert len(set(seen)) == 5


async def test_an_event_without_state_is_found_again_with_its_key(watching: Watching, tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("x")
    async with watching() as watcher:
        state = watcher.state
    for number in range(5):
        (tmp_path / f"{number:03}.txt").write_text("y")
    before = await collect(tmp_path, state, 5)
    assert [event.state is None for event in before] == [False, True, True, False, False]
    assert before[0].state is not None
    again = await collect(
        tmp_path, before[0].state, 4
    )  # killed when the second was stored: the third is delivered twice
    assert [event.file_path for event in again] == ["001.txt", "002.txt", "003.txt", "004.txt"]
    assert keys(again[:2]) == keys(before[1:3])
    assert again[0].state is not None
    assert keys(await collect(tmp_path, again[0].state, 1)) == keys(again[1:2])


async def test_a_file_changed_back_after_its_event_fires_although_the_state_knows_it(
    watching: Watching, tmp_path: Path
) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("x")
    async with watching() as watcher:
        state = watcher.state
    for number in range(4):
        (tmp_path / f"{number:03}.txt").write_text("y")
    before = await collect(tmp_path, state, 2)  # 001 was stored, without a state of its own
    (tmp_path / "001.txt").write_text("x")
    assert before[0].state is not None
    again = await collect(tmp_path, before[0].state, 3)
    assert sorted(str(event.file_path) for event in again) == ["001.txt", "002.txt", "003.txt"]
    assert set(keys(before)).isdisjoint(keys(again))


@pytest.mark.parametrize(("count", "files"), [(0, 0), (1, 0), (1, 1000), (5, 10), (5, 200), (700, 6400)])
def test_every_event_is_covered_by_a_state(count: int, files: int) -> None:
    carried = carriers(count, files)
    covered = sorted([*carried, *(event for followers in carried.values() for event in followers)])
    assert covered == list(range(count))
    assert count == 0 or count - 1 in carried
    assert len(carried) * files <= (count + 64) * 64 + 2 * files


def test_a_state_is_json_and_comes_back_equal() -> None:
    files = {
        "a/b.txt": Fingerprint(0, -1, 2**40, UNSURE, b"c" * 8),
        "caf\udce9\n": Fingerprint(2**40, 10**18, 7, 10**18 + 1, UNREAD),
    }
    for saved in (Saved(7, files, {"x\udce9": 6}), Saved(0, {}, {})):
        assert decode(json.loads(json.dumps(encode(saved)))) == saved


def test_a_state_of_another_format_is_none() -> None:
    assert decode({}) is None
    assert decode({"generation": 1, "manifest": "eJw="}) is None


def test_a_young_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    young = fingerprint(str(file))
    assert young is not None and young.ctime == UNSURE
    assert fingerprint(str(file), young._replace(content=b"of old")) == young


def test_a_manifest_that_is_abandoned_stops_looking(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}").mkdir()
    looked: list[str] = []

    def wanted(path: str) -> bool:
        looked.append(path)
        return True

    manifest = Manifest(str(tmp_path), wanted, recursive=True, abandoned=lambda: len(looked) >= 3)
    (tmp_path / "0" / "a.txt").write_text("x")
    (tmp_path / "9" / "a.txt").write_text("x")
    assert manifest.compare([""]) == []
    assert len(looked) == 11  # itself, and what is in it


def test_what_is_no_regular_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert fingerprint(str(tmp_path / "pipe")) is None
    assert fingerprint(str(tmp_path / "dangling")) is None
    assert fingerprint(str(tmp_path)) is None
