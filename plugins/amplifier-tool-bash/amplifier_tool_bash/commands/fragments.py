"""Split a command that is not decoded into what looks like its commands; only a refusal looks at them."""

from __future__ import annotations

import re

from .parsing import MOST_COMMANDS
from .words import Word

_LONGEST_FRAGMENT = 4_096
_ENDS = re.compile(r"[;&|\n()`{}]|\$\(|\b(?:do|then|else|time|coproc)\b|!")
_PART = r"\w./=:,@%+~-"
_WHOLE_ENDS = re.compile(
    rf"[;\n()`{{}}]|(?:(?<![<>])|(?<=\\[<>]))[&|]|\$\(|(?<![{_PART}])(?:do|then|else|time|coproc)(?![{_PART}])|!"
)
"""The same, but for the second sign of `>|`, `>&` and `<&`, and a part of another word, such as `--time`."""
_BEFORE_PROGRAM = re.compile(r"([A-Za-z_]\w*\+?=)|[0-9]*[<>|]+", re.ASCII)
"""An assignment, or the sign of a redirection."""


def split_fragments(text: str) -> list[str]:
    """Return the first fragments of a text, by both kinds of ends, each shortened."""
    found = [each for ends in (_ENDS, _WHOLE_ENDS) for each in ends.split(text)[: 4 * MOST_COMMANDS]]
    return list(dict.fromkeys(each[:_LONGEST_FRAGMENT] for each in found))


def guess_words(fragment: str) -> list[Word]:
    """Return the words of the command that a fragment may be, from its program on, though no shell reads it.

    Its redirections are not guessed: most are signs of prose, such as an arrow, a quotation or `<name>`.
    """
    words = [Word(word) for word in re.sub(r"[\\'\"]", "", fragment).split()]
    while words and (found := _BEFORE_PROGRAM.match(words[0].text)) is not None:
        del words[: 2 if found[0] == words[0].text and not found[1] else 1]
    return words
