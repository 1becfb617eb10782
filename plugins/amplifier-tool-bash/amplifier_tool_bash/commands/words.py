"""Read one word of a shell command: its literal text, and the traces that matter afterwards.

Only literal text is read. An expansion, a substitution or any other sign that a shell would obey raises `Opaque`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from amplifier_sandbox.contracts import find_home

_ENDS = frozenset(" \t\n;&|<>")
_OBEYED = {
    "$": "an expansion",
    "`": "a command substitution",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    "{": "braces",
    "}": "braces",
}
_GLOB = frozenset("*?[")
_GLOB_SIGN = re.compile(r"[*?[]")
_SIMPLE_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_NUMERIC_ESCAPE = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})")


class Opaque(Exception):
    """A command has a sign that is not decoded here; the text says which."""


class Unfinished(Exception):
    """A command ends in the middle; the text says of what."""


class Word(NamedTuple):
    """One word with its quotes removed."""

    text: str
    glob: int | None = None
    """The place of the first unquoted `*`, `?` or `[` in `text`."""
    bare: int = 0
    """The characters at the start that no quote or backslash protects."""
    pattern: str = ""
    """What its names fit, as of `fnmatch`: for a word with `[` more than those of a shell."""

    @property
    def is_bare(self) -> bool:
        """Whether nothing of it is quoted."""
        return self.bare == len(self.text)


class WordReader:
    """Reads words of `text`; `place` is where the next one begins."""

    def __init__(self, text: str, *, is_bash: bool) -> None:
        self.text = text
        self.place = 0
        self._is_bash = is_bash
        self._read = ""
        self._bare: int | None = None
        self._glob: int | None = None
        self._pattern = ""
        self._is_in_bracket = False

    def read_word(self) -> Word:
        """Read the word that begins here. Raises `Opaque` and `Unfinished`."""
        self._read, self._bare, self._glob = "", None, None
        self._pattern, self._is_in_bracket = "", False
        while self.place < len(self.text) and self.text[self.place] not in _ENDS:
            self._read_piece(self.text[self.place])
        bare = len(self._read) if self._bare is None else self._bare
        return Word(self._read, self._glob, bare, self._pattern if self._glob is not None else "")

    def _read_piece(self, sign: str) -> None:
        if sign == "'":
            self._protect(self._until("'", self.place + 1))
        elif sign == '"':
            self.place += 1
            self._read_double_quoted()
        elif sign == "\\":
            self._read_escaped()
        elif self.text.startswith("$'", self.place):
            if not self._is_bash:
                raise Opaque("$'…' in a shell that may not know it")
            self.place += 2
            self._read_c_quoted()
        elif self.text.startswith("{}", self.place):  # a shell leaves it as it is
            self._add("{}", "{}")
            self.place += 2
        elif sign in _OBEYED:
            raise Opaque(_OBEYED[sign])
        elif sign == "~" and ((not self._read and self._bare is None) or self._read[-1:] in ("=", ":")):
            self._read_home()
        else:
            if sign in _GLOB and self._glob is None:
                self._glob = len(self._read)
            self._add(sign, "*" if sign == "[" else sign)
            self._is_in_bracket = self._is_in_bracket or sign == "["
            self.place += 1

    def _add(self, text: str, pattern: str) -> None:
        """Add text. What follows `[` in a name may be anything: where that ends is not decoded."""
        self._read += text
        if self._is_in_bracket and "/" in pattern:
            pattern, self._is_in_bracket = pattern[pattern.index("/") :], False
        if not self._is_in_bracket:
            self._pattern += pattern

    def _protect(self, text: str) -> None:
        """Add quoted text."""
        if self._bare is None:
            self._bare = len(self._read)
        self._add(text, _GLOB_SIGN.sub(r"[\g<0>]", text))

    def _until(self, quote: str, start: int) -> str:
        end = self.text.find(quote, start)
        if end < 0:
            raise Unfinished(f"a quote ({quote}) has no end")
        self.place = end + 1
        return self.text[start:end]

    def _read_escaped(self) -> None:
        following = self.text[self.place + 1 : self.place + 2]
        self.place += 2
        if not following:
            raise Unfinished("a backslash has nothing after it")
        if following != "\n":  # a line that goes on
            self._protect(following)

    def _read_double_quoted(self) -> None:
        self._protect("")
        while (sign := self.text[self.place : self.place + 1]) != '"':
            if not sign:
                raise Unfinished('a quote (") has no end')
            if sign in "$`":
                raise Opaque(_OBEYED[sign])
            following = self.text[self.place + 1 : self.place + 2]
            if sign == "\\" and following and following in '$`"\\\n':
                self._protect(following.replace("\n", ""))
                self.place += 2
            else:
                self._protect(sign)
                self.place += 1
        self.place += 1

    def _read_c_quoted(self) -> None:
        """Read the rest of `$'…'`."""
        self._protect("")
        while (sign := self.text[self.place : self.place + 1]) != "'":
            if not sign:
                raise Unfinished("a quote ($') has no end")
            self.place += 1
            self._protect(self._read_c_escape() if sign == "\\" else sign)
        self.place += 1

    def _read_c_escape(self) -> str:
        sign = self.text[self.place : self.place + 1]
        if sign and sign in _SIMPLE_ESCAPES:
            self.place += 1
            return _SIMPLE_ESCAPES[sign]
        found = _NUMERIC_ESCAPE.match(self.text, self.place)
        if found is None:
            raise Opaque("an unusual escape in $'…'")
        self.place = found.end()
        number = int(found[found.lastindex or 1], 8 if found.lastindex == 4 else 16)
        if not 0 < number < (0x80 if found.lastindex in (1, 4) else 0xD800):
            raise Opaque("a byte outside of text in $'…'")
        return chr(number)

    def _read_home(self) -> None:
        """Read `~` at the start of a word; of another user, or after `=`, it is not decoded."""
        following = self.text[self.place + 1 : self.place + 2]
        if self._read or not (not following or following == "/" or following in _ENDS):
            raise Opaque("a tilde")
        if (home := find_home()) is None:
            raise Opaque("a tilde, and no home folder")
        self._protect(home)
        self.place += 1
