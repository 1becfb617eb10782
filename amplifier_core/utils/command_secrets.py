"""Hide secrets in texts with commands, and no code: what looks like a password may be a command of a stranger.

Of what is hidden, a word is no code. More than that, such as `x;rm y` behind `PASSWORD=`, may run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .secrets import HIDDEN, hide_known, redact_text, redactor

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN_CODE = "[REDACTED, MAY BE CODE]"
_CODE = ";&|<>(){}`'\"\\ \t\n"
"""Characters that end a word of a shell, or begin another command."""
_ENDS = ";&|)} \t\n"
"""Those of them behind a word, without a command of their own."""


def redact_words(text: str) -> str:
    """Return a command without secrets for who decides about its code: what may be code is shown in their place.

    Secrets that are known by value are always hidden.
    """
    if HIDDEN_CODE in text:  # hidden before
        return HIDDEN_CODE.join(map(redact_words, text.split(HIDDEN_CODE)))
    known = hide_known(text)
    first, *others = redact_text(known).split(HIDDEN)
    shown, end = first, len(first)
    for number, part in enumerate(others, start=1):
        start = len(known) - len(part) if number == len(others) else known.find(part, end)
        if start < end:
            return known
        hidden = known[end:start]
        word = _find_word(hidden)
        stands_apart = re.search(r"=\s+$", shown) is not None  # `PASSWORD= x` runs x
        shown += (hidden.replace(word, HIDDEN, 1) if word and not stands_apart else hidden) + part
        end = start + len(part)
    return shown


def redact_commands(text: str, hide: Callable[[str], str] = redact_text) -> str:
    """Return what `hide` returns, with `HIDDEN_CODE` as the mark if what is hidden may be code; for lists and logs."""
    parts = text.split(HIDDEN_CODE)  # hidden before
    shown = [hide(part) for part in parts]
    if _is_code_hidden("".join(parts), "".join(shown)):
        shown = [part.replace(HIDDEN, HIDDEN_CODE) for part in shown]
    return HIDDEN_CODE.join(shown)


def redact_values(value: Any) -> Any:
    """Return a copy of a value as `redact_all` does, with the mark of `redact_commands` in each of its texts."""
    from . import redact_secrets

    return _redact_each(redact_secrets(value), redactor())


def holds_code(secret: str) -> bool:
    """Return whether a likely secret may be code: it is more than a word."""
    return any(each in secret for each in _CODE)


def _find_word(hidden: str) -> str:
    """Return the word of a hidden text, within quotes or before the end of its command; "" for one with code."""
    word = hidden.rstrip(_ENDS)
    if word[:1] in ("'", '"'):
        word = word[1:].removesuffix(word[0])
    word = word.rstrip("'\"")
    return "" if holds_code(word) else word


def _redact_each(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _redact_each(each, hide) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_each(each, hide) for each in value]
    return redact_commands(value, hide) if isinstance(value, str) else value


def _is_code_hidden(text: str, shown: str) -> bool:
    return shown != text and any(shown.count(each) < text.count(each) for each in _CODE)
