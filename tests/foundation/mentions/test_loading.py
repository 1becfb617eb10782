"""Reading what a text mentions: in order, once, within limits, and without an exception."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplifier_foundation.mentions import (
    BaseMentionResolver,
    ContentDeduplicator,
    ContextFile,
    MentionResult,
    load_mentions,
    load_mentions_sync,
)
from amplifier_foundation.mentions.loading import HINTS, MAX_BYTES, MAX_FILE_BYTES, MAX_FILES, MAX_MENTIONS, SECRET

from .conftest import Write

pytestmark = pytest.mark.slow


def contents(results: list[MentionResult]) -> dict[str, str | None]:
    return {result.mention: result.content for result in results}


def errors(results: list[MentionResult]) -> dict[str, str]:
    return {result.mention: result.error for result in results if result.error}


async def test_a_mention_becomes_the_text_of_its_file(write: Write, resolver: BaseMentionResolver) -> None:
    file = write("work/a.md", b"\xef\xbb\xbfBe brief.\r\n")
    assert await load_mentions("Follow @a.md", resolver) == [MentionResult("@a.md", file, "Be brief.\r\n", None)]
    assert await load_mentions("nothing here", resolver) == []


def test_files_mention_files_relative_to_themselves_nearest_first(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/a.md", "A @docs/b.md @kit:k.md")
    write("work/docs/b.md", "B @./c.md @../z.md @top.md")
    write("work/docs/c.md", "C")
    write("work/top.md", "T")
    write("work/z.md", "Z")
    write("kit/k.md", "K @sub/l.md @top.md")
    write("kit/sub/l.md", "L")
    results = load_mentions_sync("@a.md @z.md", resolver)
    assert [(result.mention, result.content and result.content[0]) for result in results] == [
        ("@a.md", "A"),
        ("@z.md", "Z"),
        ("@docs/b.md", "B"),
        ("@kit:k.md", "K"),
        ("@./c.md", "C"),
        ("@../z.md", None),
        ("@top.md", "T"),
        ("@sub/l.md", "L"),
        ("@top.md", None),
    ]
    assert "kit" in errors(results)["@top.md"]


def test_the_text_itself_may_begin_elsewhere(write: Write, resolver: BaseMentionResolver, tmp_path: Path) -> None:
    write("work/sub/a.md", "sub")
    write("work/b.md", "base")
    results = load_mentions_sync("@./a.md @b.md", resolver, relative_to=tmp_path / "work" / "sub")
    assert contents(results) == {"@./a.md": "sub", "@b.md": "base"}


def test_a_circle_of_files_ends(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/a.md", "@b.md")
    write("work/b.md", "@a.md @./b.md")
    results = load_mentions_sync("@a.md", resolver, max_depth=100)
    assert contents(results) == {"@a.md": None, "@b.md": "@a.md @./b.md", "@./b.md": None}
    assert errors(results) == {}
    assert [result.content for result in results] == ["@b.md", "@a.md @./b.md", None, None]


def test_a_mention_that_is_too_deep_says_so(write: Write, resolver: BaseMentionResolver) -> None:
    for number in range(6):
        write(f"work/{number}.md", f"@{number + 1}.md")
    results = load_mentions_sync("@0.md", resolver)
    assert [result.mention for result in results if result.content] == ["@0.md", "@1.md", "@2.md"]
    assert errors(results) == {"@3.md": "mentions are followed 3 files deep; mention it nearer to the instruction"}
    assert [result.content for result in load_mentions_sync("@0.md", resolver, max_depth=0)] == [None]


def test_a_decorator_in_code_mentions_nothing(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/a.py", "@cache\ndef f(): ...\n")
    write("work/cache.md", "not meant")
    assert list(contents(load_mentions_sync("@a.py", resolver))) == ["@a.py"]


def test_one_content_under_several_paths_is_one_file(write: Write, resolver: BaseMentionResolver) -> None:
    a, b = write("work/a.md", "same"), write("work/b.md", "same")
    other = write("work/c.md", "other")
    kept = ContentDeduplicator()
    load_mentions_sync("@a.md @c.md @b.md @./a.md", resolver, kept)
    same, different = kept.get_unique_files()
    assert same == ContextFile(
        "same",
        "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5",
        (a, b),
        ("@a.md", "@./a.md", "@b.md"),
    )
    assert (different.content, different.paths) == ("other", (other,))
    assert [kept.add_file(other, "same"), kept.add_file(other, "new"), kept.add_file(other, "new")] == [
        False,
        True,
        False,
    ]


def test_what_cannot_be_read_is_an_error_and_the_rest_is_read(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    write("work/good.md", "good")
    write("work/binary", b"\x89PNG\r\n\x1a\n\0\0")
    write("work/nul.txt", "a\0b")
    write("work/docs/x.md")
    with (work / "sparse.txt").open("wb") as file:
        file.truncate(100 * 2**20)
    os.mkfifo(work / "pipe")
    (work / "pipe.md").symlink_to("pipe")
    (work / "out.md").symlink_to(tmp_path / "outside.md")
    (work / "loop.md").symlink_to("loop.md")
    text = (
        "@binary @nul.txt @docs @sparse.txt @pipe @pipe.md @out.md @loop.md @../outside.md @godo.md @kti:x "
        f"@{'n' * 300} @good.md\0x @b\udc80"
    )
    results = load_mentions_sync(text, resolver)
    assert errors(results) == {
        "@binary": "byte 0x89 is not UTF-8; save the file as UTF-8",
        "@nul.txt": "contains the character U+0000: not a text file",
        "@docs": "docs: is a folder; mention a file in it",
        "@sparse.txt": "is larger than 1024 KiB; mention a smaller file with the part that matters",
        "@pipe": "pipe: is not a regular file",
        "@pipe.md": "pipe.md: is not a regular file",
        "@out.md": "out.md: leads out of .; mention a file in it",
        "@../outside.md": "../outside.md: leads out of .; mention a file in it",
        "@loop.md": "loop.md: is a broken link",
        "@godo.md": "godo.md: no such file; did you mean 'good.md'?",
        "@kti:x": "no bundle or folder is registered as 'kti'; did you mean 'kit'? Registered: kit",
        f"@{'n' * 300}": "File name too long",
        "@b\udc80": '"b\\udc80": no such file',
    }
    assert [result.content for result in results if result.error is None] == ["good"]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_another_resolvers_path_is_read_with_the_same_care(write: Write, tmp_path: Path) -> None:
    class Anything:
        def resolve(self, mention: str) -> Path | None:
            if mention == "@raise":
                raise OSError("the network is down")
            if mention == "@loop":
                raise RuntimeError("Symlink loop")
            return None if mention == "@none" else tmp_path / "work" / mention[1:]

    write("work/a.md", "@b.md @./c.md")
    write("work/b.md", "B")
    os.mkfifo(tmp_path / "work" / "pipe")
    (tmp_path / "work" / "zero").symlink_to("/dev/zero")
    results = load_mentions_sync("@a.md @pipe @zero @gone @none @raise @loop", Anything(), relative_to=tmp_path)
    assert contents(results)["@b.md"] == "B"
    assert errors(results) == {
        "@pipe": "is not a regular file",
        "@zero": "is not a regular file",
        "@gone": "No such file or directory",
        "@none": "no such file",
        "@raise": "the network is down",
        "@loop": "Symlink loop",
        "@./c.md": "No such file or directory",
    }


def test_a_file_without_a_size_is_read_to_the_limit(write: Write, tmp_path: Path) -> None:
    write("work/a.md", b"x" * MAX_FILE_BYTES)
    write("work/b.md", b"x" * (MAX_FILE_BYTES + 1))
    results = load_mentions_sync("@a.md @b.md", BaseMentionResolver(None, tmp_path / "work"))
    assert [result.error is None for result in results] == [True, False]
    proc = Path("/proc/self/status")
    if proc.exists():
        [status] = load_mentions_sync("@status", BaseMentionResolver(None, proc.parent))
        assert status.content and status.content.startswith("Name:")


def test_all_files_together_have_a_limit_that_smaller_ones_may_fill(
    write: Write, resolver: BaseMentionResolver
) -> None:
    size = MAX_FILE_BYTES - 1000
    for number in range(9):
        write(f"work/{number}.md", str(number) * size)
    write("work/small.md", "small")
    results = load_mentions_sync(" ".join(f"@{number}.md" for number in range(9)) + " @small.md", resolver)
    assert errors(results) == {"@8.md": f"only {MAX_BYTES // 2**20} MiB are read for one instruction; mention less"}
    assert contents(results)["@small.md"] == "small"


def test_of_five_thousand_mentions_the_first_files_are_read(write: Write, resolver: BaseMentionResolver) -> None:
    for number in range(MAX_FILES + 5):
        write(f"work/{number}.md", f"number {number}")
    results = load_mentions_sync(" ".join(f"@{number}.md" for number in range(5000)), resolver)
    assert [result.content for result in results[:MAX_FILES]] == [f"number {number}" for number in range(MAX_FILES)]
    assert {result.error for result in results[MAX_FILES : MAX_FILES + 5]} == {
        f"only {MAX_FILES} files are read for one instruction; mention fewer"
    }
    assert len(results) == 5000
    assert all(result.error for result in results[MAX_FILES:])


def test_only_the_first_missing_files_get_a_hint(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/rules-0.md")
    results = load_mentions_sync(" ".join(f"@rules-{number}.md" for number in range(1, HINTS + 3)), resolver)
    assert ["did you mean" in (result.error or "") for result in results] == [True] * HINTS + [False] * 2


def test_mentions_without_end_end_with_one_result_for_all_others(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/a.md", " ".join(f"@kti:{number}" for number in range(MAX_MENTIONS)))
    results = load_mentions_sync("@a.md @b:c", resolver)
    assert len(results) == MAX_MENTIONS + 1
    assert results[-1] == MentionResult(
        f"@kti:{MAX_MENTIONS - 2}", error="this and all further mentions are left out: the limit is 10,000"
    )


def test_a_file_whose_name_says_that_it_holds_secrets_is_not_read(write: Write, resolver: BaseMentionResolver) -> None:
    for name in (".env", ".aws/credentials", "keys/id_rsa"):
        write(f"work/{name}", "SECRET")
    write("work/plain.md", "@.env")
    Path("notes.md").symlink_to(".env")
    Path(".env.local").symlink_to("plain.md")
    results = load_mentions_sync("@.env @.aws/credentials @keys/id_rsa @plain.md @notes.md @.env.local", resolver)
    assert [result.mention for result in results if result.content] == ["@plain.md"]
    assert set(errors(results).values()) == {SECRET}
