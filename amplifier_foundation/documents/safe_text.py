"""Make texts of others safe to print: without secrets, and without characters that steer a terminal."""

from __future__ import annotations

import codecs
import os
import re
import sys
from typing import TYPE_CHECKING

from amplifier_core.permissions.hidden import UNSEEN
from amplifier_core.utils.secrets import redact_text

if TYPE_CHECKING:
    from collections.abc import Callable

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and changes of the text direction."""
_UNSEEN = re.compile(f"[{UNSEEN}]")
GAP = 40
"""Blanks beside each other that are told as their number: behind more, the end of a line may not be seen."""
LOOKED_AT = 16_384
"""Characters of a text that a line is made of."""


def plain(text: str) -> str:
    """Return `text` without characters that steer a terminal or hide text."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def plain_line(text: str) -> str:
    """Return `text` as `plain` does, as one line: a line break is the escape of one."""
    return plain(text).replace("\n", "\\n")


def exact(text: str) -> str:
    """Return `text` as `plain` does, with characters that do not show as escapes, for a person who decides by it."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), plain(text))


def exact_line(text: str) -> str:
    """Return `text` as `exact` does, whole and as one line; a wide gap is told as the number of its blanks."""
    line = exact(text).replace("\n", "\\n")
    return re.sub(rf"\s{{{GAP},}}", lambda found: f" [{len(found[0])} blanks] ", line)


def shell_word(text: str) -> str:
    """Return `text` as a word of a command to paste, written in bytes if the terminal may not give it back."""
    import shlex

    encoding = codecs.lookup(getattr(sys.stderr, "encoding", None) or "utf-8").name
    if text.isprintable() and (text.isascii() or encoding == "utf-8"):
        return shlex.quote(text)
    shown = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte:03o}" for byte in os.fsencode(text))
    return f"$'{''.join(shown)}'"


def one_line(text: str, length: int, hide: Callable[[str], str] = redact_text) -> str:
    """Return the text in one line of at most `length` characters; `hide` removes the secrets."""
    safe = hide(text[:LOOKED_AT])  # first: half of a secret is not recognised
    line = " ".join(plain(safe).split())
    is_whole = len(line) <= length and not text[LOOKED_AT:].strip()
    return line if is_whole else line[: length - 1] + "…"
