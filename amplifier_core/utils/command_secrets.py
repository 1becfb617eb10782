"""Hide secrets in texts with commands, and no code: what looks like a password may be a command of a stranger.

Of what is hidden, a word is no code. More than that, such as `x;rm y` behind `PASSWORD=`, may run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .secrets import HIDDEN, hide_known, redact_text

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN_CODE = "[REDACTED, MAY BE CODE]"
_CODE = ";&|<>(){}`'\"\\ \t\n"
"""Characters that end a word of a shell, or begin another command."""


def redact_words(text: str, hide: Callable[[str], str] = redact_text) -> str:
    """Return a text without secrets for who decides about its code: if `hide` would hide code, it hides nothing.

    Secrets that are known by value are always hidden.
    """
    known = hide_known(text)
    shown = hide(known)
    return known if _is_code_hidden(known, shown) else shown


def redact_commands(text: str, hide: Callable[[str], str] = redact_text) -> str:
    """Return what `hide` returns, with `HIDDEN_CODE` as the mark if what is hidden may be code; for lists and logs."""
    parts = text.split(HIDDEN_CODE)  # hidden before
    shown = [hide(part) for part in parts]
    if _is_code_hidden("".join(parts), "".join(shown)):
        shown = [part.replace(HIDDEN, HIDDEN_CODE) for part in shown]
    return HIDDEN_CODE.join(shown)


def _is_code_hidden(text: str, shown: str) -> bool:
    return shown != text and any(shown.count(each) < text.count(each) for each in _CODE)
