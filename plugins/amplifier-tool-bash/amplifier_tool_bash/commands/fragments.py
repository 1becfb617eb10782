"""Split a command that is not decoded into what looks like its commands; only a refusal looks at them."""

from __future__ import annotations

import re

from .parsing import MOST_COMMANDS
from .words import Word

_LONGEST_FRAGMENT = 4_096
_OF_WORD = r"\w./=:,@%+~-"
_ENDS = re.compile(
    rf"[;\n()`{{}}]|(?:(?<![<>])|(?<=\\[<>]))[&|]|\$\(|(?<![{_OF_WORD}])(?:do|then|else|time|coproc)(?![{_OF_WORD}])|!"
)
"""What parts commands; the second sign of `>|`, `>&` and `<&` does not, nor a part of another word."""
_BEFORE_PROGRAM = re.compile(r"([A-Za-z_]\w*\+?=)|[0-9]*[<>|]+", re.ASCII)
"""An assignment, or the sign of a redirection."""


def split_fragments(text: str) -> list[str]:
    """Return the first fragments of a text, each shortened."""
    return [each[:_LONGEST_FRAGMENT] for each in _ENDS.split(text)[: 4 * MOST_COMMANDS]]


def guess_words(fragment: str) -> list[Word]:
    """Return the words of the command that a fragment may be, from its program on, though no shell reads it.

    Its redirections are not guessed: most are signs of prose, such as an arrow, a quotation or `<name>`.
    """
    words = [Word(word) for word in re.sub(r"[\\'\"]", "", fragment).split()]
    while words and (found := _BEFORE_PROGRAM.match(words[0].text)) is not None:
        del words[: 2 if found[0] == words[0].text and not found[1] else 1]
    return words
