"""Parse the mentions in a Markdown text.

Every pattern is possessive: the time is linear in the length of any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 4096
"""Characters of a path; longer text mentions nothing. PATH_MAX of Linux."""

_ITEM = r"(?:[-*+]|\d{1,9}+[.)])[ \t]"
_FENCE = re.compile(rf"^[ \t>]*+(?P<items>(?:{_ITEM}++)*+)(?P<fence>`{{3,}}+|~{{3,}}+)(?P<info>[^\n]*+)", re.MULTILINE)
_NEXT_BLOCK = re.compile(rf"\n(?=[ \t>]*+(?:\r?\n|#|{_ITEM}))")
"""The latest end of inline code: before an empty line, a heading, an item of a list."""
_TICKS = re.compile(r"`++")

_WIDE = r"\u00ab\u00bb\u2013\u2014\u2018-\u201f\u2026\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
"""Quotes, dashes and punctuation beyond ASCII."""
_BEFORE = rf"\s(\[{{<>\"'*,;|{_WIDE}"
"""Allowed before a mention; after a letter, a dot or a slash it is part of an address."""
_END = rf"\s\x00-\x1f\x7f()\[\]{{}}<>\"'`*,;!?|{_WIDE}"
_MENTION = re.compile(rf'(?<![^{_BEFORE}])@(?:"([^"\x00-\x1f\x7f]*+)"|([^@{_END}][^{_END}]*+))')


def parse_mentions(text: str) -> list[str]:
    """Return the mentions in `text`, in order, each once, with `@` and without quotes: `@docs/a b.md`.

    Code, in fences or backticks, and mail addresses mention nothing. Without quotes a mention ends at the first space,
    bracket, quote or one of `,;!?*|`; a final dot or colon is not part of it. An open fence extends to the end of the
    text.
    """
    if "@" not in text:
        return []
    found: dict[str, None] = {}
    for part in _split_at_fences(text):
        for block in _NEXT_BLOCK.split(part):
            for match in _MENTION.finditer(_remove_code(block)) if "@" in block else ():
                name = (match[1] or "").strip() or (match[2] or "").rstrip(".:")
                if len(name) <= LONGEST and any(map(str.isalnum, name)):
                    found[f"@{name}"] = None
    return list(found)


def _split_at_fences(text: str) -> Iterator[str]:
    begin, fence = 0, ""
    for line in _FENCE.finditer(text):
        if not fence:
            if line["fence"][0] == "`" and "`" in line["info"]:
                continue  # code within the line
            yield text[begin : line.start()]
            fence = line["fence"]
        elif line["fence"].startswith(fence) and not line["items"] and not line["info"].strip():
            begin, fence = line.end(), ""
    if not fence:
        yield text[begin:]


def _remove_code(block: str) -> str:
    """Return `block` with a backtick for each code span: from a run of backticks to the next of its length."""
    last = {len(run[0]): run.start() for run in _TICKS.finditer(block)}
    kept: list[str] = []
    begin = 0
    runs = _TICKS.finditer(block)
    for run in runs:
        if last[len(run[0])] > run.start():
            kept.append(block[begin : run.start()])
            begin = next(end.end() for end in runs if end[0] == run[0])
    kept.append(block[begin:])
    return "`".join(kept)
