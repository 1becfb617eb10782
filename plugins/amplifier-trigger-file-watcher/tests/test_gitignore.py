"""Patterns beside git itself, on lists and paths that are generated."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pathspec import GitIgnoreSpec

from amplifier_trigger_file_watcher.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTS = int(os.environ.get("IGNORE_LISTS", "80"))
SEED = int(os.environ.get("SEED", "20261121"))
NAMES = ("a", "b", "c", "d", "ab", "a.py", "b.py", "x.txt", ".h", "a b", "#a", "!b", "caf\u00e9", "a\nb")
PARTS = (
    *("a", "b", "c", "d", "ab", "x.txt", "a b", "caf\u00e9", r"\a", r"\#a", r"\!b", "#a"),
    *("*", "*.py", "a*", "?", "a?", "*b*", ".*", "**", "[ab]", "[!a]", "[a-c]", "[^b].py", "[]a]", "[z-a]"),
)
"""Parts of patterns. Left out: `a**/b`, which git reads as `a` and then `**/b`, and `[a/b]`, a set with a slash."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def ignored_by_git(folder: Path, paths: Sequence[str]) -> set[str]:
    command = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(command, cwd=folder, input="\0".join(paths).encode(), capture_output=True, check=False)
    assert done.stderr == b""
    return set(done.stdout.decode().split("\0")) - {""}


def some_pattern(chance: random.Random) -> str:
    pattern = "/".join(chance.choices(PARTS, k=chance.choice((1, 1, 1, 2, 2, 3))))
    sign, start = chance.choice(("", "", "!")), chance.choice(("", "", "", "/"))
    return sign + start + pattern + chance.choice(("", "", "/", " ", "/ "))


def some_paths(chance: random.Random) -> list[str]:
    return sorted({"/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(80)} - {"a"})


@pytest.mark.parametrize("part", range(4))
def test_generated_gitignore_files_mean_what_they_mean_to_git(repository: Path, part: int) -> None:
    chance = random.Random(f"{SEED} {part}")
    folder = repository / "inner"
    (folder / "a").mkdir(parents=True)  # so that `a` is no file
    for _ in range(LISTS // 4):
        files = (repository, folder, folder / "a")
        for each in files:
            lines = [some_pattern(chance) for _ in range(chance.randint(0, 4))]
            (each / ".gitignore").write_text(chance.choice(("\n", "\r\n")).join(lines), newline="")
        if ignored_by_git(repository, ["inner"]):
            continue  # whoever names an ignored folder wants its files
        paths = some_paths(chance)
        scope = Scope(folder, folder, ["*"], [], gitignore=True)
        shown = [(each / ".gitignore").read_text() for each in files]
        assert {path for path in paths if not scope.counts(path)} == ignored_by_git(folder, paths), shown


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        (["foo/*", "!foo/bar"], "foo/bar"),
        (["foo/**", "!foo/bar"], "foo/bar"),
        (["*", "!*/", "!*.py"], "a/b/c.py"),
        (["*", "!a/", "!a/b"], "a/b"),
        (["a/ "], "a/b"),
        (["a\\ ", "b\t"], "a "),
        (["[a", "[", "\\", "*.py"], "[a"),
    ],
)
def test_a_known_case_means_what_it_means_to_git(repository: Path, lines: list[str], path: str) -> None:
    (repository / ".gitignore").write_text("\n".join(lines))
    scope = Scope(repository, repository, ["*"], [], gitignore=True)
    assert scope.counts(path) == (path not in ignored_by_git(repository, [path]))


def test_pathspec_alone_lets_files_of_an_ignored_folder_in(repository: Path) -> None:
    (repository / ".gitignore").write_text("!a\n?/\n")
    assert ignored_by_git(repository, ["c/a"]) == {"c/a"}
    assert not GitIgnoreSpec.from_lines(["!a", "?/"]).match_file("c/a"), "IgnoreRules need no longer do this themselves"
    assert not Scope(repository, repository, ["*"], [], gitignore=True).counts("c/a")
