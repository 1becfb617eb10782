"""Patterns as in .gitignore."""

from __future__ import annotations

import pytest

from amplifier_trigger_file_watcher.patterns import DEFAULT_IGNORES, IgnoreRules, Patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["a.py", "src/deep/a.py"], ["a.pyc", "py", "a.py.txt"]),
        ("**/*.py", ["a.py", "src/deep/a.py"], ["a.pyc"]),
        ("**/*", ["a", "src/.hidden", "a/b/c"], []),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "lib/src/a.py", "src/a.txt"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("/a.py", ["a.py"], ["src/a.py"]),
        ("**/x", ["x", "a/b/x", "a/x/inside"], ["ax", "a/xb"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("docs", ["docs", "docs/a.md", "x/docs/a.md"], ["docs.md", "mydocs/a"]),
        ("docs/", ["docs/", "docs/a.md", "x/docs/a.md"], ["docs"]),
        ("a?c", ["abc"], ["ac", "a/c", "abbc"]),
        ("[a-c].txt", ["b.txt"], ["d.txt", "-.txt"]),
        ("[!a-c].txt", ["d.txt", "x/d.txt"], ["b.txt", "/.txt"]),
        ("[]x].txt", ["].txt", "x.txt"], ["[.txt"]),
        (r"[\w].txt", ["w.txt", "\\.txt"], ["a.txt"]),
        (r"\*.txt", ["*.txt"], ["a.txt"]),
        ("a.c", ["a.c"], ["abc"]),
        ("f(o|u)+", ["f(o|u)+"], ["fo", "foo"]),
        ("a\nb", ["a\nb"], ["a"]),
        ("*.md", ["line\nbreak.md"], ["line\nbreak.md\n"]),
    ],
)
def test_a_pattern_matches_as_in_gitignore(pattern: str, matching: list[str], others: list[str]) -> None:
    patterns = Patterns([pattern])
    assert [path for path in matching if not patterns.match(path)] == []
    assert [path for path in others if patterns.match(path)] == []


def test_the_last_pattern_that_matches_decides() -> None:
    patterns = Patterns(["*.py", "!test_*.py", "test_kept.py"])
    assert patterns.match("src/a.py")
    assert not patterns.match("src/test_a.py")
    assert patterns.match("src/test_kept.py")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        *((pattern, "matches nothing") for pattern in ("", "/", "!", "!/", "  ", "[a")),
        ("[z-a]", "cannot be read: bad character range z-a"),
        ("a\\", "cannot be read: it ends in a backslash"),
        ("#a", r"is a comment; write '\\#a'"),
    ],
)
@pytest.mark.parametrize("kind", [Patterns, IgnoreRules])
def test_a_pattern_that_cannot_match_is_refused(kind: type[Patterns | IgnoreRules], pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(["*.py", pattern])


def test_a_folder_is_taken_back_after_the_files_in_it() -> None:
    patterns = Patterns(["*.md", "!docs/", "docs/kept.md"])
    assert [path for path in ("a.md", "docs/a.md", "x/docs/a.md", "docs/kept.md") if patterns.match(path)] == [
        "a.md",
        "docs/kept.md",
    ]


def test_what_tools_and_editors_write_for_themselves_is_ignored() -> None:
    ignored = Patterns(DEFAULT_IGNORES)
    noise = [".git/index", "x/.git/HEAD", "node_modules/a/b.js", "a/__pycache__/m.pyc", "m.pyc", ".m.py.swp", "m.py~"]
    noise += ["4913", ".#m.py", "#m.py#", ".venv/bin/python", "a/.DS_Store", "..2026_11_29_12_00_02.123/a.txt"]
    assert [path for path in noise if not ignored.match(path)] == []
    assert [
        path for path in ("m.py", ".gitignore", "git/x", "src/venv.py", ".env", "..notes/a.md") if ignored.match(path)
    ] == []


def test_lost_and_found_files_of_a_file_system_are_left_out() -> None:
    assert IgnoreRules(DEFAULT_IGNORES).decide("lost+found/")
    assert not IgnoreRules(DEFAULT_IGNORES).decide("lost+found.txt")
