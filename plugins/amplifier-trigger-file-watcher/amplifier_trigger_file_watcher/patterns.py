"""Path patterns as in a .gitignore file.

`*` and `?` stay within one folder, `**` crosses folders. A pattern without a slash matches at any depth, one with a
slash is relative to the watched folder; one that ends in a slash matches folders alone. What matches a folder matches
all that is in it. `!` takes back; the last pattern that matches decides.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_IGNORES = (
    *(".git/", ".hg/", ".svn/"),
    *(
        "__pycache__/",
        "*.py[co]",
        ".venv/",
        "venv/",
        ".tox/",
        ".nox/",
        ".mypy_cache/",
        ".pytest_cache/",
        ".ruff_cache/",
    ),
    "node_modules/",
    *("*~", "*.sw[a-p]", "4913", ".#*", "#*#", ".*.kate-swp", ".goutputstream-*", "*___jb_tmp___", "*___jb_old___"),
    *(".DS_Store", "Thumbs.db"),
)
"""What version control, interpreters, editors and desktops write for themselves."""


class Patterns:
    """A list of patterns, compiled."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [(line.startswith("!"), translate(line.removeprefix("!"))) for line in lines]
        self._rules = [
            (negated, re.compile("|".join(regex for _, regex in group), re.DOTALL))
            for negated, group in groupby(rules, key=lambda rule: rule[0])
        ]

    def match(self, path: str) -> bool:
        """Return whether a path relative to the watched folder matches; a folder's ends in a slash."""
        for negated, regex in reversed(self._rules):
            if regex.fullmatch(path):
                return not negated
        return False


def translate(pattern: str) -> str:
    """Return the regular expression of one pattern. Raises `ValueError` for one that matches nothing."""
    body = pattern.rstrip("/")
    if not body:
        raise ValueError(f"{pattern!r} matches nothing")
    anchored = "/" in body
    regex = _translate_parts(body.removeprefix("/").split("/"))
    inside = "/.*" if pattern.endswith("/") else "(?:/.*)?"
    return ("" if anchored else "(?:.*/)?") + regex + inside


def _translate_parts(parts: list[str]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            regex += ".*" if last else "(?:.*/)?"
        else:
            regex += _translate_name(part) + ("" if last else "/")
    return regex


_TOKEN = re.compile(r"(?P<stars>\*+)|(?P<any>\?)|\[(?P<negated>[!^]?)(?P<set>\]?[^\]]*)\]|\\?(?P<literal>.)", re.DOTALL)


def _translate_name(name: str) -> str:
    return "".join(_translate_token(token) for token in _TOKEN.finditer(name))


def _translate_token(token: re.Match[str]) -> str:
    if token["stars"]:
        return "[^/]*"
    if token["any"]:
        return "[^/]"
    if token["set"]:
        characters = re.sub(r"([\\\[\]^&~|])", r"\\\1", token["set"])
        return f"[^/{characters}]" if token["negated"] else f"[{characters}]"
    return re.escape(token["literal"])
