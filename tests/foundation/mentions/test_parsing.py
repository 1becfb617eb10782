"""Which parts of a text are mentions."""

from __future__ import annotations

import pytest

from amplifier_foundation.mentions import parse_mentions

MEGABYTE = 2**20


def test_every_form_of_a_mention_is_found_in_order_and_once() -> None:
    text = (
        "Follow @rules.md and @./x, @../y; read @~/notes.txt, @kit:context/style.md\n"
        'and @"path with spaces.md", then @docs/api/index.md. Again: @rules.md, @"rules.md".\n@last'
    )
    assert parse_mentions(text) == [
        "@rules.md",
        "@./x",
        "@../y",
        "@~/notes.txt",
        "@kit:context/style.md",
        "@path with spaces.md",
        "@docs/api/index.md",
        "@last",
    ]


@pytest.mark.parametrize("after", [*".,;:!?)]}>'\"*|", "...", "?!", ").", "'s", "](link)", "\u201d", "\u3002", "\r\n"])
def test_what_follows_a_mention_does_not_belong_to_it(after: str) -> None:
    assert parse_mentions(f"see @docs/a.md{after}") == ["@docs/a.md"]


@pytest.mark.parametrize(
    "before", [*"([{<\"'*,;|>", "\t", "\n", "- ", "> ", "## ", "**", "\u201c", "\u2014", "](", "`x` "]
)
def test_a_mention_may_follow_an_opening_bracket_a_quote_or_a_space(before: str) -> None:
    assert parse_mentions(f"see {before}@a.md") == ["@a.md"]


@pytest.mark.parametrize(
    "text",
    [
        "a@b.c",
        "first.last+tag@example.com",
        "<mailto:a@b.c>",
        "https://example.com/@user/post",
        "postgres://user:@host/db",
        "name=@value",
        "\\@escaped",
        "@",
        "@ a",
        "@.",
        "@..",
        "@~/",
        "@-",
        '@""',
        '@"open',
        "@@",
        "@@a",
        "@\0a",
        "@" + "a" * 5000,
    ],
)
def test_what_only_looks_like_a_mention_is_none(text: str) -> None:
    assert parse_mentions(text) == []


def test_an_at_sign_dots_and_colons_may_stand_inside_a_mention() -> None:
    assert parse_mentions("@node_modules/@types/x.d.ts @kit:a.b/c:d.md") == [
        "@node_modules/@types/x.d.ts",
        "@kit:a.b/c:d.md",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "`@no`",
        "`` ` @no ` ``",
        "`over\n@no lines`",
        "\n```\n@no\n```\n",
        "\n```python\n@no\n~~~\n````\n",
        "\n~~~\n@no\n```\n~~~\n",
        "\n  - ```\n    @no\n    ```\n",
        "\n1. ~~~ text\n   @no\n   ~~~\n",
        "\n> ```\n> @no\n> ```\n",
        "\r\n```\r\n@no\r\n```\r\n",
    ],
)
def test_code_mentions_nothing_and_ends_where_markdown_says(code: str) -> None:
    assert parse_mentions(f"@before {code} @after") == ["@before", "@after"]


def test_a_fence_without_an_end_goes_on_to_the_end() -> None:
    assert parse_mentions("@a\n```\n@b\n\n``\n~~~\n@c") == ["@a"]


def test_a_shorter_fence_and_one_with_a_word_behind_it_close_nothing() -> None:
    assert parse_mentions("````\n@a\n```\n@b\n```` word\n@c\n````\n@d") == ["@d"]


def test_three_backticks_around_code_on_one_line_are_no_fence() -> None:
    assert parse_mentions("```@a``` and @b\n@c") == ["@b", "@c"]


def test_a_lonely_backtick_hides_nothing() -> None:
    assert parse_mentions("a ` and @a, then `` and @b") == ["@a", "@b"]
    assert parse_mentions("one ` here\n\n@a and ` there") == ["@a"]
    assert parse_mentions("- one ` here\n- @a\n- and ` there\n# ` @b") == ["@a", "@b"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@" * 10 * MEGABYTE, []),
        ("@a " + "`" * 10 * MEGABYTE, ["@a"]),
        ("@a " + " ".join("`" * length for length in range(1, 4500)), ["@a"]),
        ("@a " + "`x " * MEGABYTE + "@b `` @c", ["@a", "@b", "@c"]),
        ("@a\n" + " " * 10 * MEGABYTE + "@b", ["@a", "@b"]),
        ("@a\n" + "- " * MEGABYTE + "@b", ["@a", "@b"]),
        ("@a\n" + "> " * MEGABYTE + "@b", ["@a", "@b"]),
        ('@"' * MEGABYTE, []),
        ('@"' + "a" * 10 * MEGABYTE, []),
        ("@a" + "." * 10 * MEGABYTE + " @b", ["@a", "@b"]),
    ],
    ids=["at", "one run", "every length", "pairs", "spaces", "items", "quotes", "quoted", "unclosed", "dots"],
)
def test_a_text_of_megabytes_is_read_in_one_go(text: str, found: list[str]) -> None:
    assert parse_mentions(text) == found
