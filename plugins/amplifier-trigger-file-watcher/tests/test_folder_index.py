"""The known files below a folder."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_trigger_file_watcher.folder_index import FolderIndex, find_outermost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDERS = ["", "a/", "a/b/", "a/b/c/", "a/bb/", "d/", "d/e/"]


@pytest.mark.parametrize("seed", range(20))
def test_the_files_below_a_folder_are_those_that_a_search_through_all_finds(seed: int) -> None:
    chance, files = random.Random(seed), set[str]()
    index = FolderIndex(files)
    for _ in range(200):
        path = f"{chance.choice(FOLDERS)}{chance.choice('xyz')}"
        if chance.random() < 0.5:
            files.add(path)
            index.add(path)
        else:
            files.discard(path)
            index.discard(path)
        for folder in FOLDERS:
            assert sorted(index.find_below(folder)) == sorted(each for each in files if each.startswith(folder))


def test_only_folders_in_no_other_are_outermost() -> None:
    assert sorted(find_outermost(["a/b/", "a/bb/", "a/b/c/d/", "e/f/", "e/f/"])) == ["a/b/", "a/bb/", "e/f/"]
    assert find_outermost(["a/", ""]) == [""]


def test_an_index_without_files_holds_no_folder() -> None:
    index = FolderIndex(["a/b/c.txt", "a/d.txt"])
    for path in ("a/b/c.txt", "a/d.txt", "never/there.txt"):
        index.discard(path)
    assert index._files == index._folders == {}


async def test_a_folder_fires_for_its_files_however_they_came_to_be_known(
    tmp_path: Path, watching: Callable[..., Any]
) -> None:
    (tmp_path / "old" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "deep" / "a.txt").write_text("a")
    async with watching() as watcher:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "b.txt").write_text("b")
        assert await watcher.changes() == [("created", "new/b.txt")]
        (tmp_path / "old").rename(tmp_path / "new" / "old")
        assert sorted(await watcher.changes()) == [("created", "new/old/deep/a.txt"), ("deleted", "old/deep/a.txt")]
        (tmp_path / "new" / "old").rename(tmp_path / "old")
        assert sorted(await watcher.changes()) == [("created", "old/deep/a.txt"), ("deleted", "new/old/deep/a.txt")]
