"""Find words in texts, in the same way in every store: whatever a person or a model types is a query.

Letters and digits make words; all else parts them. Case, accents and other marks do not count. A sign of a script
without spaces, such as Chinese, is a word of its own, and signs that stand together are looked for together.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONGEST_WORD = 64
"""Characters of a word that count; the rest is left out."""
MOST_WORDS = 10
"""Words of a query that count: the first ones."""
PREFIX = 3
"""A word of a query with so many characters, or more, also finds the words that begin with it."""
SNIPPET = 160
"""Characters of a snippet, about."""

_PLAIN = re.compile(r"[a-z0-9]+")
_WORD = re.compile(r"[^\W_]+")
_SPACELESS = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Compiled by the first search that needs it: that takes 3 ms."""


def fold_text(text: str) -> str:
    """Return a text in the form for comparing parts: capitals, and ways to write the same letter, do not count.

    An `ü` of macOS, in two characters, is that of a keyboard, and a wide digit is a digit. Accents count.
    """
    return (
        text.lower()
        if text.isascii()
        else unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    )


def fold_words(text: str) -> str:
    """Return the words of a text in the form in which they are compared, with a space between two."""
    return " ".join(word for part in _parts(text) for word in part)


def read_query(text: str) -> list[str]:
    """Return the words to look for; signs that belong together are one text with spaces. No text is an error."""
    return list(dict.fromkeys(" ".join(part) for part in _parts(text)))[:MOST_WORDS]


def has_prefixes(word: str) -> bool:
    """Return whether a word of a query also finds the words that begin with it."""
    return len(word) >= PREFIX and " " not in word


def has_parts(word: str) -> bool:
    """Return whether a word of a query is found within longer ones as it is: all its signs are of such a script."""
    return all(re.fullmatch(_SPACELESS, each) for each in word.split())


def contains(folded: str, word: str) -> bool:
    """Return whether folded words contain a word of a query."""
    return f" {word}{'' if has_prefixes(word) else ' '}" in f" {folded} "


def rank(found: Sequence[Sequence[int]], whole: Iterable[int] = (), limit: int | None = None) -> list[int]:
    """Return the best numbers first; `found` has those of each word, `whole` those with all words.

    A word counts the more, the fewer numbers it has; of equal ones the highest comes first.
    """
    weights = [1 / log2(1 + len(numbers)) if numbers else 0.0 for numbers in found]
    scores = dict[int, float]()
    for weight, numbers in zip(weights, found, strict=True):
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weight
    scores |= dict.fromkeys(whole, sum(weights))
    return sorted(scores, key=lambda number: (-scores[number], -number))[:limit]


def join_members(data: Mapping[str, Any], members: Sequence[str]) -> str:
    """Return the texts of these members, a line for each; others than texts and lists of texts are left out."""
    values = [data.get(name) for name in members]
    lines = [", ".join(map(str, each)) if isinstance(each, list | tuple) else each for each in values]
    return "\n".join(line for line in lines if isinstance(line, str))


def cut_snippet(text: str, words: Sequence[str]) -> str:
    """Return one line of a text around the first of the words; its beginning without one."""
    found = (each for each in _WORD.finditer(text) if any(contains(fold_words(each[0]), word) for word in words))
    start = next((each.start() for each in found), 0)
    start = max(0, start - SNIPPET // 4) if start > SNIPPET // 2 else 0
    line = " ".join(text[start : start + SNIPPET].split())
    return f"{'… ' if start else ''}{line}{' …' if start + SNIPPET < len(text) else ''}"


def _parts(text: str) -> list[list[str]]:
    """Return the runs of letters and digits, each as one word, or as a word for each sign without spaces."""
    if text.isascii():
        return [[word[:LONGEST_WORD]] for word in _PLAIN.findall(text.lower())]
    parts = []
    for word in _WORD.findall("".join(map(_fold, text))):
        spaced = re.sub(_SPACELESS, r" \g<0> ", word).split()
        parts.append([each[:LONGEST_WORD] for each in spaced])
    return parts


@lru_cache(maxsize=4096)
def _fold(character: str) -> str:
    """Return a character without case and marks."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(each for each in folded if unicodedata.category(each)[0] != "M")
