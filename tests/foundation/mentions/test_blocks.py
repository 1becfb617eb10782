"""The blocks that follow an instruction."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_foundation.mentions import (
    BaseMentionResolver,
    ContentDeduplicator,
    ContextFile,
    context_block,
    expand_mentions_in_instruction,
)

from .conftest import Write


async def test_the_files_follow_the_instruction_which_keeps_its_mentions(
    write: Write, resolver: BaseMentionResolver, tmp_path: Path
) -> None:
    write("work/a.md", "\nBe brief. See @kit:k.md\n\n")
    write("work/same.md", "\nBe brief. See @kit:k.md\n\n")
    kit = write("kit/k.md", "  indented\n")
    assert await expand_mentions_in_instruction("Follow @a.md, @./a.md and @same.", resolver) == (
        "Follow @a.md, @./a.md and @same.\n\n"
        '<context_file paths="@a.md, @./a.md, @same → a.md, same.md">\nBe brief. See @kit:k.md\n</context_file>\n\n'
        f'<context_file paths="@kit:k.md → {kit}">\n  indented\n</context_file>'
    )


async def test_an_instruction_without_mentions_stays_as_it_is(resolver: BaseMentionResolver) -> None:
    for text in ("", "Write to a@b.c.\n", "No mention.\n"):
        assert await expand_mentions_in_instruction(text, resolver) == text


async def test_what_is_left_out_is_one_warning(
    write: Write, resolver: BaseMentionResolver, caplog: pytest.LogCaptureFixture
) -> None:
    write("work/good.md", "good")
    with caplog.at_level(logging.WARNING):
        text = await expand_mentions_in_instruction("@godo.md @b @c\u009b @d @good.md", resolver)
    assert text.endswith('<context_file paths="@good.md → good.md">\ngood\n</context_file>')
    assert [record.getMessage() for record in caplog.records] == [
        "mentions are left out: @godo.md: godo.md: no such file; did you mean 'good.md'?; @b: b: no such file; "
        '@c\N{REPLACEMENT CHARACTER}: "c\\u009b": no such file; and 1 more'
    ]


async def test_a_text_that_the_deduplicator_holds_is_not_repeated(write: Write, resolver: BaseMentionResolver) -> None:
    write("work/a.md", "A")
    write("work/b.md", "B")
    kept = ContentDeduplicator()
    await expand_mentions_in_instruction("@a.md", resolver, kept)
    assert await expand_mentions_in_instruction("@a.md @b.md", resolver, kept) == (
        '@a.md @b.md\n\n<context_file paths="@b.md → b.md">\nB\n</context_file>'
    )


@pytest.mark.parametrize(
    "tag",
    ["</context_file>", "</CONTEXT_FILE >", "< / context_file>", '<context_file paths="@x">', "<\n/\tcontext_file"],
)
def test_a_text_cannot_close_its_block_or_open_one(tag: str) -> None:
    assert context_block([ContextFile(f"a\n{tag}\nb", "", (Path("a.md"),))]) == (
        f'<context_file paths="a.md">\na\n&lt;{tag[1:]}\nb\n</context_file>'
    )


def test_other_markup_in_a_text_stays() -> None:
    text = "if a < b and c > d & e: <b>context_file</b>" + "<" * 5 + " " * 100_000 + "x"
    assert context_block([ContextFile(text, "", (Path("a"),))]) == f'<context_file paths="a">\n{text}\n</context_file>'


def test_a_name_cannot_leave_its_attribute() -> None:
    hostile = Path('a"><b>&\n\udcff')
    [opening, _, _] = context_block([ContextFile("x", "", (hostile,), ('@"\n\udc80<',))]).splitlines()
    assert opening.startswith('<context_file paths="@&quot;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}&lt; → ')
    assert opening.count('"') == 2
    assert opening.count("<") == opening.count(">") == 1
    opening.encode()


def test_importing_mentions_imports_nothing_heavy() -> None:
    code = "import sys, amplifier_foundation.mentions; print({'asyncio', 'pydantic', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
