"""From mentions to files, and the fence around them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amplifier_foundation import Bundle
from amplifier_foundation.mentions import BaseMentionResolver

from .conftest import Write


@pytest.mark.parametrize(
    ("mention", "file"),
    [
        ("@a.md", "work/a.md"),
        ("@./a.md", "work/a.md"),
        ("@docs/../a.md", "work/a.md"),
        ('@"with space.txt"', "work/with space.txt"),
        ("@with space.txt", "work/with space.txt"),
        ("@~/n.md", "home/n.md"),
        ("@kit:context/s.md", "kit/context/s.md"),
        ("@a", "work/a.md"),
        ("@docs", "work/docs.md"),
        ("@kit:context/s", "kit/context/s.md"),
        ("@v1.2", "work/v1.2.md"),
        ("@both", "work/both"),
    ],
)
def test_a_mention_stands_for_its_file(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path, mention: str, file: str
) -> None:
    for name in ("a.md", "with space.txt", "docs/x.md", "docs.md", "v1.2.md", "both", "both.md"):
        write(f"work/{name}")
    write("home/n.md")
    write("kit/context/s.md")
    assert resolver.resolve(mention) == tmp_path / file
    assert resolver.explain(mention) == ""


def test_a_namespace_is_a_folder_or_something_that_has_one(write: Write, tmp_path: Path) -> None:
    write("kit/x.md")
    bundle = Bundle.from_dict({"bundle": {"name": "b"}}, tmp_path / "kit")
    rootless = Bundle.from_dict({"bundle": {"name": "c"}})
    resolver = BaseMentionResolver({"b": bundle, "text": str(tmp_path / "kit"), "none": rootless})
    resolver.register("user", tmp_path / "kit")
    assert [resolver.resolve(f"@{name}:x.md") for name in ("b", "text", "user")] == [tmp_path / "kit" / "x.md"] * 3
    assert resolver.explain("@none:x.md") == ("no bundle or folder is registered as 'none'. Registered: b, text, user")


def test_relative_mentions_begin_in_one_folder_and_plain_ones_are_looked_for_in_the_base_too(
    write: Write, tmp_path: Path
) -> None:
    write("work/a.md")
    write("work/b.md")
    write("work/sub/a.md")
    resolver = BaseMentionResolver(None, tmp_path / "work", relative_to=tmp_path / "work" / "sub")
    found = {mention: resolver.resolve(mention) for mention in ("@a.md", "@./a.md", "@../a.md", "@b.md", "@./b.md")}
    work = tmp_path / "work"
    assert list(found.values()) == [work / "sub/a.md", work / "sub/a.md", work / "a.md", work / "b.md", None]


def test_relative_mentions_stay_in_their_folder_where_it_is_outside_of_the_base(write: Write, tmp_path: Path) -> None:
    write("kit/sub/a.md")
    write("kit/b.md")
    resolver = BaseMentionResolver(None, tmp_path / "work", relative_to=tmp_path / "kit" / "sub")
    assert resolver.resolve("@./a.md") == tmp_path / "kit/sub/a.md"
    assert resolver.resolve("@../b.md") is None


@pytest.mark.parametrize(
    "mention",
    [
        "@../outside.md",
        "@docs/../../outside.md",
        "@link.md",
        "@link",
        "@folder/outside.md",
        "@kit:../outside.md",
        "@kit:link.md",
        "@~/../outside.md",
        "@~/link.md",
        "@ABSOLUTE",
        "@kit:ABSOLUTE",
    ],
)
def test_nothing_outside_is_reached(write: Write, resolver: BaseMentionResolver, tmp_path: Path, mention: str) -> None:
    write("work/docs/x.md")
    for place in ("work", "kit", "home"):
        (tmp_path / place / "link.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "work" / "folder").symlink_to(tmp_path)
    mention = mention.replace("ABSOLUTE", str(tmp_path / "outside.md"))
    assert resolver.resolve(mention) is None
    if mention != "@link":
        assert "leads out of" in resolver.explain(mention)


def test_a_link_that_stays_inside_is_followed(write: Write, resolver: BaseMentionResolver, tmp_path: Path) -> None:
    file = write("work/real.md")
    (tmp_path / "work" / "link.md").symlink_to("real.md")
    assert resolver.resolve("@link.md") == file


def test_what_is_no_regular_file_is_none_and_told_apart(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path
) -> None:
    write("work/docs/x.md")
    os.mkfifo(tmp_path / "work" / "pipe")
    assert [resolver.resolve(mention) for mention in ("@docs", "@docs/", "@pipe")] == [None] * 3
    assert resolver.explain("@docs") == "docs: is a folder; mention a file in it"
    assert resolver.explain("@pipe") == "pipe: is not a regular file"


def test_a_missing_file_is_told_with_the_nearest_name(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/docs/rules.md")
    write("work/other.txt")
    assert resolver.explain("@docs/rulse.md") == "docs/rulse.md: no such file; did you mean 'rules.md'?"
    assert resolver.explain("@docs/rule") == "docs/rule: no such file; did you mean 'rules.md'?"
    assert resolver.explain("@dosc/deep/rules.md") == "dosc/deep/rules.md: no such file; did you mean 'docs'?"
    assert resolver.explain("@zzz") == "zzz: no such file"
    assert resolver.explain("@docs/rulse.md", hint=False) == "docs/rulse.md: no such file"
    assert (
        resolver.explain("@ikt:x") == "no bundle or folder is registered as 'ikt'; did you mean 'kit'? Registered: kit"
    )


def test_no_name_outside_of_the_folder_is_given_as_a_hint(write: Write, resolver: BaseMentionResolver) -> None:
    assert "did you mean" not in resolver.explain("@../outsid.md")
    assert "did you mean" not in resolver.explain("@kit:x/../../outsid.md")


@pytest.mark.parametrize("mention", ["", "@", "@a\0b", "@" + "n" * 300, "@\ud800", "@kit:", "@loop", "@~", "@a:", "@/"])
def test_what_is_no_path_at_all_is_none_with_a_reason(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path, mention: str
) -> None:
    (tmp_path / "work" / "loop").symlink_to("loop")
    assert resolver.resolve(mention) is None
    assert resolver.explain(mention)


def test_a_loaded_file_reaches_its_own_root_and_named_ones_and_the_home_only_from_there(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path
) -> None:
    inside = write("kit/docs/a.md")
    write("kit/b.md")
    write("work/w.md")
    note = write("home/notes/n.md")
    of_kit, of_home = resolver.within(inside), resolver.within(note)
    mentions = ("@./a.md", "@../b.md", "@b.md", "@kit:b.md", "@w.md", "@~/notes/n.md", "@../../outside.md")
    assert [of_kit.resolve(mention) is not None for mention in mentions] == [True] * 4 + [False] * 3
    assert "home folder is not within reach" in of_kit.explain("@~/notes/n.md")
    assert of_home.resolve("@~/notes/n.md") == of_home.resolve("@./n.md") == note
    assert of_home.within(inside).resolve("@~/notes/n.md") is None


def test_the_innermost_root_around_a_file_is_its_own(write: Write, tmp_path: Path) -> None:
    file = write("work/bundle/docs/a.md")
    write("work/w.md")
    write("work/bundle/b.md")
    within = BaseMentionResolver({"bundle": tmp_path / "work" / "bundle"}, tmp_path / "work").within(file)
    assert within.resolve("@b.md") == tmp_path / "work/bundle/b.md"
    assert within.resolve("@../../w.md") is None


def test_a_file_that_no_root_holds_reaches_its_own_folder(write: Write, resolver: BaseMentionResolver) -> None:
    file = write("elsewhere/a.md")
    write("elsewhere/b.md")
    within = resolver.within(file)
    assert within.resolve("@b.md") == file.with_name("b.md")
    assert within.resolve("@../outside.md") is None
