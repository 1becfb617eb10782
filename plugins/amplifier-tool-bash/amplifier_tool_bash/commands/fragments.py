"""Split a command that is not decoded into what looks like its commands; only a refusal looks at them."""

from __future__ import annotations

import re

from .parsing import MOST_COMMANDS, Redirection, SimpleCommand
from .words import Word

_LONGEST_FRAGMENT = 4_096
_ENDS = re.compile(
    r"[;\n()`{}]|(?:(?<![<>])|(?<=\\[<>]))[&|]|\$\(|!"
    r"|\b(?:if|elif|then|else|fi|while|until|do|done|esac|time|coproc)\b"
)
"""What parts commands; the second sign of `>|`, `>&` and `<&` does not."""
_BEFORE_PROGRAM = re.compile(r"([A-Za-z_]\w*\+?=)|[0-9]*[<>|]+", re.ASCII)
"""An assignment, or the sign of a redirection."""
_REDIRECTION = re.compile(r"(?<![-=<])(<>|[<>][>|&]?)[ \t]*([^\s<>|&]+)")
"""A redirection, but for the arrows of prose."""


def split_fragments(text: str) -> list[str]:
    """Return the first fragments of a text, each shortened."""
    return [each[:_LONGEST_FRAGMENT] for each in _ENDS.split(text)[: 4 * MOST_COMMANDS]]


def guess_command(fragment: str) -> SimpleCommand:
    """Return what a fragment that no shell reads may be."""
    bare = re.sub(r"[\\'\"]", "", fragment)
    words = [Word(word) for word in bare.split()]
    while words and (found := _BEFORE_PROGRAM.match(words[0].text)) is not None:
        del words[: 2 if found[0] == words[0].text and not found[1] else 1]
    return SimpleCommand((), tuple(words), [Redirection(*found) for found in _REDIRECTION.findall(bare)], "")
