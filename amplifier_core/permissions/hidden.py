r"""Name hidden characters, and find them. A set is a part of a class of an expression: `f"[{UNSEEN}]"`.

They are Unicode's Default_Ignorable_Code_Point, line separators, the marks of annotations, and the blank of Braille.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UNSEEN = (
    "\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
"""No name needs them, but for the blank of Braille between its letters."""
BRAILLE = "(?<![\u2800-\u28ff]\u2800(?=[\u2800-\u28ff]))"
"""A condition behind a class with `UNSEEN` that leaves out that blank."""
JOINERS = "\u200c\u200d"
"""They join letters or part them: Persian words and many emoji have them."""
VARIATIONS = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""They choose the form of the character before: emoji, and Japanese and Mongolian names have them."""
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Control characters, those that change the direction of a text, those without width, and line separators."""
_JOINED = re.compile(f"((?<=[^\0-\x7f{JOINERS}])[{JOINERS}]|[{JOINERS}](?=[^\0-\x7f{JOINERS}]))")
"""A joiner beside a letter or an emoji. Between letters of ASCII, it only makes one name look like another."""


def is_printable(text: str) -> bool:
    """Return whether a text is one printable line, as `str.isprintable` says; letters and emoji may be joined."""
    return text.isprintable() or _JOINED.sub("", text).isprintable()


def replace_unprintable(text: str, replace: Callable[[str], str]) -> str:
    """Return a text with `replace` of each unprintable character, besides the joiners of letters and emoji."""
    if text.isprintable():
        return text
    table = {ord(each): replace(each) for each in set(text) if not each.isprintable()}
    if not any(each in text for each in JOINERS):
        return text.translate(table)  # several times as fast
    parts = _JOINED.split(text)  # a joiner stands between two
    return "".join(part if at % 2 else part.translate(table) for at, part in enumerate(parts))


def show_hidden(text: str, keep: str = "") -> str:
    r"""Return a text with its hidden characters as escapes (`\u202e`), besides those in `keep`."""
    from unicodedata import category

    def show(each: str) -> str:
        is_kept = each in keep or category(each) not in _HIDDEN
        return each if is_kept else each.encode("unicode_escape", "surrogatepass").decode("ascii")

    return replace_unprintable(text, show)
