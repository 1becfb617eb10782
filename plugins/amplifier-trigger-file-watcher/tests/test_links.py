"""Files with another way to them: symbolic links, and hard links."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.testing.clock import VirtualClock
from amplifier_trigger_file_watcher import scope
from amplifier_trigger_file_watcher.change_detector import LINUX
from amplifier_trigger_file_watcher.manifest import Manifest
from amplifier_trigger_file_watcher.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_trigger_file_watcher.manifest import Change

    Watching = Callable[..., AbstractAsyncContextManager[Any]]


def mount_config(volume: Path, version: int) -> None:
    """Write a version of a configuration, and swap it in, as Kubernetes does with a ConfigMap."""
    data = volume / f"..{version}"
    data.mkdir()
    (data / "app.yaml").write_text(f"version: {version}")
    (volume / "..data_tmp").symlink_to(data.name, target_is_directory=True)
    (volume / "..data_tmp").rename(volume / "..data")
    if not (volume / "app.yaml").is_symlink():
        (volume / "app.yaml").symlink_to("..data/app.yaml")


async def test_a_swapped_link_to_a_folder_fires_for_the_files_that_lead_through_it_at_once(
    watching: Watching, tmp_path: Path
) -> None:
    mount_config(tmp_path, 1)
    async with watching(patterns=["/*.yaml"], poll_interval=3600) as watcher:
        mount_config(tmp_path, 2)
        assert await watcher.next_change() == ("modified", "app.yaml")
        mount_config(tmp_path, 3)
        assert await watcher.next_change() == ("modified", "app.yaml")


async def test_a_swapped_volume_fires_for_its_changed_files_alone(watching: Watching, tmp_path: Path) -> None:
    def swap(version: int, **texts: str) -> None:
        """Write all files of a version, swap it in, and remove the one before, as kubelet does."""
        data = tmp_path / f"..2026_11_29_{version}"
        data.mkdir()
        for name, text in texts.items():
            (data / f"{name}.txt").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(data.name, target_is_directory=True)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        if version > 1:
            shutil.rmtree(tmp_path / f"..2026_11_29_{version - 1}")

    swap(1, a="one", b="one")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with watching(patterns=["*.txt"], poll_interval=3600) as watcher:
        swap(2, a="two", b="one")
        assert await watcher.changes() == [("modified", "a.txt")]
        swap(3, a="two", b="two")
        assert await watcher.changes() == [("modified", "b.txt")]
        swap(4, a="two", b="two")
        assert await watcher.changes() == []
        assert watcher.trigger._repeats.seconds_left(0.0) is None, "no file is to fire again"


@pytest.mark.parametrize("link", [os.symlink, os.link])
async def test_a_change_by_another_name_fires_after_the_poll_interval(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, link: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.txt"
    outside.write_text("one")
    clock = VirtualClock()
    link(outside, tmp_path / "first.txt")
    async with watching(clock=clock, debounce_ms=0, poll_interval=5) as watcher:
        outside.write_text("two")
        await clock.until_sleeping()
        await clock.advance(5)
        assert await watcher.next_change() == ("modified", "first.txt")
        link(outside, tmp_path / "second.txt")
        assert await watcher.next_change() == ("created", "second.txt")
        outside.write_text("three")
        await clock.until_sleeping()
        await clock.advance(5)
        changes = {await watcher.next_change() for _ in range(2)}
        assert changes == {("modified", "first.txt"), ("modified", "second.txt")}


async def test_links_are_known_after_a_restart(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.txt"
    outside.write_text("one")
    (tmp_path / "a.txt").symlink_to(outside)
    async with watching() as watcher:
        pass
    async with watching(state=watcher.state, poll_interval=0.02) as watcher:
        outside.unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")
        outside.write_text("two")
        assert await watcher.next_change() == ("created", "a.txt")


def test_a_link_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).symlink_to("nowhere")
    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    manifest.begin()
    (tmp_path / "a").unlink()
    assert manifest.find_changed_links() == []
    assert manifest.links == {"b"}


async def test_without_links_nothing_is_looked_at(watching: Watching, tmp_path: Path) -> None:
    clock = VirtualClock()
    (tmp_path / "a.txt").write_text("x")
    async with watching(clock=clock, poll_interval=0.01) as watcher:
        assert watcher.trigger._detector.seconds_left() is None
        await asyncio.sleep(0)


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """Return a link to the first of two releases, each with a file of its own content."""
    for number in "12":
        (tmp_path / "releases" / number).mkdir(parents=True)
        (tmp_path / "releases" / number / "same.txt").write_text("same")
        (tmp_path / "releases" / number / "a.txt").write_text(number)
    (tmp_path / "current").symlink_to("releases/1", target_is_directory=True)
    return tmp_path / "current"


def switch(link: Path, target: str) -> None:
    draft = link.with_name("draft")
    draft.symlink_to(target, target_is_directory=True)
    draft.rename(link)


@pytest.mark.parametrize(
    "config", [{"poll_interval": 3600 if LINUX else 0.02}, {"polling": True, "poll_interval": 0.02}]
)
@pytest.mark.parametrize("path", ["current", "above/current"])
async def test_a_link_to_the_folder_that_is_switched_is_followed_at_once(
    watching: Watching, tmp_path: Path, releases: Path, path: str, config: dict[str, Any]
) -> None:
    (tmp_path / "above").symlink_to(".", target_is_directory=True)
    async with watching(path=path, **config) as watcher:
        switch(releases, "releases/2")
        shutil.rmtree(tmp_path / "releases" / "1")
        assert await watcher.next_change() == ("modified", f"{path}/a.txt")
        (tmp_path / "releases" / "2" / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", f"{path}/b.txt")
        switch(releases, "nowhere")
        switch(releases, "releases/2")
        (tmp_path / "releases" / "2" / "b.txt").write_text("y")
        assert await watcher.next_change() == ("modified", f"{path}/b.txt")


async def test_a_link_above_the_folder_that_is_switched_is_followed(
    watching: Watching, tmp_path: Path, releases: Path
) -> None:
    for number in "12":
        (tmp_path / "releases" / number / "src").mkdir()
    async with watching(path="current/src", poll_interval=3600 if LINUX else 0.02) as watcher:
        switch(releases, "releases/2")
        (tmp_path / "releases" / "2" / "src" / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "current/src/a.txt")


async def test_a_link_behind_the_link_to_the_folder_is_looked_at(
    watching: Watching, tmp_path: Path, releases: Path
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "link").symlink_to("../current", target_is_directory=True)
    (tmp_path / "named").symlink_to("hidden/link", target_is_directory=True)
    async with watching(path="named", poll_interval=0.02) as watcher:
        switch(releases, "releases/2")
        assert await watcher.next_change() == ("modified", "named/a.txt")


async def test_a_link_that_leads_to_a_folder_later_is_waited_for(
    watching: Watching, tmp_path: Path, releases: Path
) -> None:
    switch(releases, "nowhere")
    async with watching(path="current") as watcher:
        switch(releases, "releases/2")
        assert sorted([await watcher.next_change(), await watcher.next_change()]) == [
            ("created", "current/a.txt"),
            ("created", "current/same.txt"),
        ]


async def test_a_path_that_leads_to_itself_is_waited_for(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    clock = VirtualClock()
    async with watching(path="loop", clock=clock, poll_interval=1) as watcher:
        assert watcher.problems
        assert watcher.events.empty()


@pytest.mark.skipif(not LINUX, reason="inotify is Linux's")
async def test_two_real_paths_of_one_folder_are_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another spelling of its path stands for the second mount of a folder."""
    from amplifier_trigger_file_watcher.inotify_places import InotifyPlaces

    (tmp_path / "first").mkdir()
    told = asyncio.Event()
    paths = [str(tmp_path / "first" / "a.txt"), str(tmp_path / "first" / ".." / "first" / "b.txt")]
    places = InotifyPlaces(paths, told.set, every_write=False)
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "realpath", lambda path: path)
        places.start()
    try:
        (tmp_path / "first" / "a.txt").write_text("x")
        await asyncio.wait_for(told.wait(), 10)
    finally:
        await places.stop()


def test_a_link_that_is_switched_while_the_folder_is_found_leaves_one_folder(
    tmp_path: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, find_links, targets = Scope(releases, tmp_path, ["*"], []), scope._find_links, ["releases/1"]

    def switch_meanwhile(folder: Path) -> list[str]:
        if targets:
            switch(releases, targets.pop())
        return find_links(folder)

    monkeypatch.setattr(scope, "_find_links", switch_meanwhile)
    switch(releases, "releases/2")
    identity = watched.find_folder()
    assert identity is not None
    assert identity[0] == watched.base == str(tmp_path / "releases" / "1")


@pytest.mark.parametrize("is_back_at_once", [True, False])
async def test_a_link_away_for_a_moment_while_the_files_are_compared_deletes_none(
    watching: Watching, tmp_path: Path, releases: Path, is_back_at_once: bool
) -> None:
    async with watching(path="current", poll_interval=3600 if LINUX else 0.02) as watcher:
        compare, loop = watcher.trigger._manifest.compare, asyncio.get_running_loop()

        def make_link() -> None:
            releases.symlink_to("releases/1", target_is_directory=True)

        def compare_without(paths: list[str]) -> list[Change]:
            watcher.trigger._manifest.compare = compare
            releases.unlink()
            changes: list[Change] = compare(paths)
            if is_back_at_once:
                make_link()
            else:
                loop.call_soon_threadsafe(loop.call_later, 0.05, make_link)
            return changes

        watcher.trigger._manifest.compare = compare_without
        (tmp_path / "releases" / "1" / "a.txt").write_text("new")
        assert await watcher.next_change() == ("modified", "current/a.txt")
        (tmp_path / "releases" / "1" / "same.txt").write_text("new")
        assert await watcher.next_change() == ("modified", "current/same.txt")
