"""What a restarted file watcher finds, and what it never repeats."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_file_watcher import FileChangeTrigger
from amplifier_trigger_file_watcher import state as states
from amplifier_trigger_file_watcher.fingerprints import UNREAD, UNSURE, Fingerprint, fingerprint
from amplifier_trigger_file_watcher.manifest import Change, Manifest
from amplifier_trigger_file_watcher.state import Journal, pack, unpack

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    Watching = Callable[..., AbstractAsyncContextManager[Any]]

LONG_AGO = (1_000_000_000, 1_000_000_000)


async def collect(folder: Path, state: Mapping[str, Any], count: int) -> list[TriggerEvent]:
    """Return the first events of a watcher that starts with `state`, and is then killed."""
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=folder, state=state))
    trigger.configure({"debounce_ms": 20})
    async with aclosing(cast("AsyncGenerator[TriggerEvent]", trigger.watch())) as stream:
        return [await asyncio.wait_for(anext(stream), 60) for _ in range(count)]


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


def stored(state: Mapping[str, Any], events: list[TriggerEvent]) -> dict[str, Any]:
    """Return the state of a store that has kept these events, through JSON."""
    kept = dict(state)
    for event in events:
        kept |= json.loads(json.dumps(event.state_changes))
    return {key: value for key, value in kept.items() if value is not None}


async def test_a_kill_within_a_batch_loses_and_repeats_nothing(watching: Watching, tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("x")
    async with watching() as watcher:
        state = watcher.state
    for number in range(5):
        (tmp_path / f"{number:03}.txt").write_text("y")
    before = await collect(tmp_path, state, 5)
    for count in range(5):
        again = await collect(tmp_path, stored(state, before[:count]), 5 - count)
        assert keys(again) == keys(before[count:])


async def test_a_file_changed_back_after_its_event_fires_after_a_kill(watching: Watching, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number:03}.txt").write_text("x")
    async with watching() as watcher:
        state = watcher.state
    for number in range(4):
        (tmp_path / f"{number:03}.txt").write_text("y")
    before = await collect(tmp_path, state, 2)
    (tmp_path / "001.txt").write_text("x")
    again = await collect(tmp_path, stored(state, before), 3)
    assert sorted(str(event.file_path) for event in again) == ["001.txt", "002.txt", "003.txt"]
    assert set(keys(before)).isdisjoint(keys(again))


async def test_the_size_of_an_event_does_not_depend_on_the_number_of_files(watching: Watching, tmp_path: Path) -> None:
    sizes = {}
    for count in (5, 500):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:03}.txt").write_text("x")
        async with watching(folder) as watcher:
            (folder / "001.txt").write_text("y")
            event = await watcher.next()
        sizes[count] = len(json.dumps(event.state_changes))
        assert event.state is None
        assert list(event.state_changes) == ["/001.txt", "generation"]
    assert sizes[500] <= sizes[5] + 4
    assert sizes[500] < 200


async def test_many_changes_become_a_snapshot(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "FEW_ROWS", 10)
    async with watching() as watcher:
        for number in range(30):
            (tmp_path / f"{number % 6}.txt").write_text(f"{number}")
            await watcher.next()
            assert len(watcher.state) <= 10 + 3
        (tmp_path / "0.txt").unlink()
        assert await watcher.next_change() == ("deleted", "0.txt")
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == []
        (tmp_path / "0.txt").write_text("24")
        assert await watcher.next_change() == ("created", "0.txt")


def journal(state: Mapping[str, Any]) -> Journal:
    return Journal(TriggerContext("tests/watcher#0", state=state))


async def test_a_state_is_json_and_comes_back_equal(watching: Watching) -> None:
    files = {
        "a/b.txt": Fingerprint(0, -1, 2**40, UNSURE, b"c" * 8),
        "caf\udce9\n": Fingerprint(2**40, 10**18, 7, 10**18 + 1, UNREAD),
    }
    for kept in (files, {}):
        assert unpack(json.loads(json.dumps(pack(kept)))) == kept
    saved: dict[str, Any] = {}

    async def save(state: Mapping[str, Any], *, merge: bool = False) -> None:
        assert merge == bool(saved)
        saved.update(json.loads(json.dumps(state)))

    written = Journal(TriggerContext("tests/watcher#0", saver=save))
    written.request_snapshot()
    await written.save(files)
    changed = {"caf\udce9\n": None, "/new": files["a/b.txt"]}
    written.defer([Change(path, "modified", file) for path, file in changed.items()])
    await written.save(files)
    assert journal(saved).restore() == {"a/b.txt": files["a/b.txt"], "/new": files["a/b.txt"]}


def test_a_state_of_another_format_is_none() -> None:
    assert journal({}).restore() is None
    assert journal({"generation": 1, "manifest": "eJw="}).restore() is None


async def test_a_state_of_format_2_goes_on_under_its_keys_and_becomes_one_of_format_3(
    watching: Watching, tmp_path: Path
) -> None:
    old = json.loads((Path(__file__).parent / "format2.json").read_text())
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("y" if number < 5 else "x")
    (tmp_path / "001.txt").write_text("x")  # as the old state has it, after an event that was perhaps stored
    events = await collect(tmp_path, old["state"], 4)
    assert [(event.change_type, event.file_path) for event in events] == [
        *(("modified", f"00{number}.txt") for number in (2, 3, 4, 1)),
    ]
    assert events[0].dedupe_key == old["keys"]["002.txt"]
    assert [event.file_path for event in await collect(tmp_path, stored(old["state"], events[:3]), 1)] == ["001.txt"]
    async with watching(state=stored(old["state"], events)) as watcher:
        assert await watcher.changes() == []
    assert watcher.state["format"] == 3
    assert set(watcher.state) <= {"format", "generation", "base", "/zz-last.txt"}


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

    def counts(path: str) -> bool:
        looked.append(path)
        return True

    manifest = Manifest(str(tmp_path), counts, recursive=True, abandoned=lambda: len(looked) >= 3)
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
