"""Paths that change and change back after their event: the session of that event may have seen them in between."""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.testing.clock import VirtualClock
from amplifier_trigger_file_watcher import fingerprints, manifest, repeats
from amplifier_trigger_file_watcher.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Watching = Callable[..., AbstractAsyncContextManager[Any]]


async def test_a_path_deleted_and_made_again_in_between_is_deleted_twice(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    async with watching(debounce_ms=50) as watcher:
        file.unlink()
        first = await watcher.next()
        file.write_text("seen by the session of the deletion")
        file.unlink()
        second = await watcher.next()
    assert [(event.change_type, event.file_path) for event in (first, second)] == [("deleted", "a.txt")] * 2
    assert first.dedupe_key != second.dedupe_key


async def test_a_deleted_path_that_a_writer_holds_open_and_leaves_no_more_is_deleted_twice(
    watching: Watching, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    async with watching(debounce_ms=0) as watcher:
        file.unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")
        with file.open("w") as writer:
            writer.write("seen by the session of the deletion")
            (tmp_path / "b.txt").write_text("x")
            assert await watcher.next_change() == ("created", "b.txt")  # so the creation of the first was heard
        file.unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")


async def test_a_deleted_path_that_is_back_while_it_is_looked_for_is_deleted_after_it_has_gone(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    async with watching(debounce_ms=50) as watcher:
        detector = watcher.trigger._detector
        add_barrier = detector.add_barrier

        def add_late() -> float:
            file.write_text("seen by the session of the deletion")
            return add_barrier()

        with monkeypatch.context() as patch:
            patch.setattr(detector, "add_barrier", add_late)
            patch.setattr(watcher.trigger._manifest, "is_quick", lambda paths: False)
            file.unlink()
            assert await watcher.next_change() == ("modified", "a.txt")
        file.unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")


async def test_a_path_changed_and_changed_back_in_between_is_modified_twice(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    async with watching(debounce_ms=50) as watcher:
        file.write_text("one")
        assert await watcher.next_change() == ("created", "a.txt")
        file.write_text("seen by the session of the creation")
        file.write_text("one")
        assert await watcher.next_change() == ("modified", "a.txt")
        (tmp_path / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", "b.txt")


async def test_a_path_changed_and_changed_back_with_its_old_time_is_modified_twice(
    watching: Watching, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    async with watching(debounce_ms=50) as watcher:
        file.write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
        status = file.stat()
        file.write_text("y")
        file.write_text("x")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert await watcher.next_change() == ("modified", "a.txt")


async def test_a_path_changed_back_beside_new_rules_is_modified_twice(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    async with watching(debounce_ms=50, gitignore=True) as watcher:
        file.write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
        file.write_text("y")
        file.write_text("x")
        (tmp_path / ".gitignore").write_text("*.log\n")
        changes = {await watcher.next_change() for _ in range(2)}
        assert changes == {("created", ".gitignore"), ("modified", "a.txt")}


def test_a_named_file_is_read_though_a_write_through_a_map_left_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "YOUNG", 0)
    (tmp_path / "a.bin").write_bytes(b"x" * 4096)
    with (tmp_path / "a.bin").open("r+b") as file, mmap.mmap(file.fileno(), 4096) as pages:
        pages[0] = ord("y")
        files = manifest.Manifest(str(tmp_path), lambda path: True, recursive=True)
        files.begin()
        assert not files.read_more(60)
        pages[0] = ord("z")
        assert [(each.path, each.kind) for each in files.compare(["a.bin"])] == [("a.bin", "modified")]


async def test_a_folder_away_in_between_fires_for_its_files_that_fired(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "old.txt").write_text("x")
    async with watching(debounce_ms=50) as watcher:
        (tmp_path / "in" / "new.txt").write_text("x")
        assert await watcher.next_change() == ("created", "in/new.txt")
        (tmp_path / "in").rename(tmp_path / "away")
        (tmp_path / "away").rename(tmp_path / "in")
        assert await watcher.next_change() == ("modified", "in/new.txt")
        assert await watcher.changes() == []


async def test_a_touched_path_that_never_fired_is_nothing(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with watching() as watcher:
        for _ in range(3):
            (tmp_path / "a.txt").write_text("x")
            assert await watcher.changes() == []


async def test_a_program_that_writes_the_same_for_ever_wakes_few_sessions(watching: Watching, tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "status.json"
    hours = 4
    async with watching(clock=clock, debounce_ms=1000) as watcher:
        for _ in range(hours * 60):
            file.write_text("same")
            await clock.until_sleeping()
            for _ in range(2):
                await clock.advance(30)
                await asyncio.sleep(0)
        await clock.until_sleeping()
        await clock.advance(hours * 3600)
        events = watcher.events.qsize()
    assert 2 <= events <= 16


async def test_a_write_by_the_woken_session_is_no_reason_to_fire_again(watching: Watching, tmp_path: Path) -> None:
    own: dict[str, str] = {}
    file = tmp_path / "a.txt"
    async with watching(own_writes=own) as watcher:
        file.write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
        own[str(file)] = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of x
        file.write_text("x")
        assert await watcher.changes() == []


def test_pauses_between_repeats_double_until_the_path_really_differs() -> None:
    fired, now, times = Repeats(), 0.0, []
    fired.note_event("a", now, again=False)
    for _ in range(4):
        fired.note_activity([("a", 0)], now)
        now += fired.seconds_left(now) or 0
        assert fired.take_due(now) == ["a"]
        fired.note_event("a", now, again=True)
        times.append(now)
    assert times == [0, 1, 3, 7]
    fired.note_event("a", now, again=False)
    fired.note_activity([("a", 0), ("unknown", 0)], now)
    assert fired.take_due(now) == ["a"]
    assert fired.seconds_left(now) is None


def test_an_event_ends_the_wait_for_a_repeat() -> None:
    fired = Repeats()
    fired.note_event("a", 0, again=True)
    fired.note_activity([("a", 0)], 0)
    fired.note_event("a", 0, again=False)
    assert fired.take_due(10) == []


def test_a_change_from_before_the_barrier_of_an_event_is_none_since() -> None:
    fired = Repeats()
    fired.note_event("x/a", 0, 5, again=False)
    fired.note_activity([("x/a", 4)], 0)
    assert fired.take_due(10) == []
    fired.note_activity([("x/a", 5)], 0)
    assert fired.take_due(10) == ["x/a"]


def test_the_oldest_paths_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "KEPT", 2)
    fired = Repeats()
    for path in ("x/a", "x/b", "x/a", "y/c"):
        fired.note_event(path, 0, again=False)
        fired.note_activity([(path, 0)], 0)
    assert fired.find_below(["x/", "y/"]) == {"x/a", "y/c"}
    assert fired.find_below([]) == set()
    assert fired.take_due(0) == ["x/a", "y/c"]


def test_many_new_folders_are_looked_up_in_less_time_than_the_events_took_to_note() -> None:
    fired, start = Repeats(), time.process_time()
    for number in range(repeats.KEPT):
        fired.note_event(f"{number % 40}/{number % 3000}/{number}.py", 0, again=False)
    noted = time.process_time()
    assert fired.find_below([*(f"new/{number}/" for number in range(5_000)), "7/"]) == {
        path for path in fired._fired if path.startswith("7/")
    }
    assert time.process_time() - noted < 2 * (noted - start)
