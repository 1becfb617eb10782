"""Path patterns as in a .gitignore file.

`*` and `?` stay within one folder, `**` crosses folders. A pattern without a slash matches at any depth, one with a
slash is relative to the folder they are for; one that ends in a slash matches folders alone. `!` takes back; the last
pattern that matches decides.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    ".amplifier/",
    *("*~", "*.sw[a-p]", "4913", ".#*", "#*#", ".*.kate-swp", ".goutputstream-*", "*___jb_tmp___", "*___jb_old___"),
    *(".DS_Store", "Thumbs.db"),
)
"""What version control, interpreters, amplifier, editors and desktops write for themselves."""

KEPT = 4096
"""Names whose verdict is kept in memory, at most: those in one tree are often the same."""


class _Rules(NamedTuple):
    """Patterns that follow each other and say the same; those of names alone look at the last part of a path."""

    negated: bool
    names: re.Pattern[str] | None
    paths: re.Pattern[str] | None

    def match(self, path: str, name: str) -> bool:
        if self.names is not None and self.names.fullmatch(name):
            return True
        return self.paths is not None and self.paths.fullmatch(path) is not None


class Patterns:
    """A list of patterns, compiled; what matches a folder matches all that is in it, unless `inside` is false."""

    def __init__(self, lines: Iterable[str], *, inside: bool = True) -> None:
        rules = [(line.startswith("!"), line.removeprefix("!")) for line in lines]
        self._rules = [
            _compiled(negated, [line for _, line in group], inside)
            for negated, group in groupby(rules, key=lambda rule: rule[0])
        ][::-1]
        self._of_names = all(rules.paths is None for rules in self._rules)
        self._by_name = lru_cache(KEPT)(lambda name: self._decide(name, name))

    def match(self, path: str) -> bool:
        """Return whether a path relative to their folder matches; a folder's ends in a slash."""
        return bool(self.decide(path))

    def decide(self, path: str) -> bool | None:
        """Return whether a path matches; None when no pattern says anything of it."""
        name = path[path.rfind("/", 0, -1) + 1 :]
        return self._by_name(name) if self._of_names else self._decide(path, name)

    def _decide(self, path: str, name: str) -> bool | None:
        for rules in self._rules:
            if rules.match(path, name):
                return not rules.negated
        return None


def lines_of(text: str) -> Iterator[str]:
    """Yield the patterns of a .gitignore file: no comments, no blank lines, none that cannot be read."""
    for line in text.splitlines():
        pattern = re.sub(r"(?<!\\)\s+$", "", line)
        if pattern and not pattern.startswith("#"):
            try:
                Patterns([pattern])
            except ValueError:
                continue  # git does not stop at one either
            yield pattern


def translate(pattern: str, *, inside: bool = True) -> str:
    """Return the regular expression of one pattern. Raises `ValueError` for one that matches nothing."""
    body = pattern.rstrip("/")
    if not body:
        raise ValueError(f"{pattern!r} matches nothing")
    regex = _translate_parts(body.removeprefix("/").split("/"))
    folder = pattern.endswith("/")
    if inside:
        end = "/.*" if folder else "(?:/.*)?"
        return ("" if "/" in body else "(?:.*/)?") + regex + end
    return regex + ("/" if folder else "/?")


def _compiled(negated: bool, lines: list[str], inside: bool) -> _Rules:
    names = [] if inside else [line for line in lines if "/" not in line.rstrip("/")]
    paths = [line for line in lines if line not in names]
    return _Rules(negated, _alternatives(names, inside), _alternatives(paths, inside))


def _alternatives(lines: list[str], inside: bool) -> re.Pattern[str] | None:
    for line in lines:
        try:
            re.compile(translate(line, inside=inside))
        except re.error as error:
            raise ValueError(f"{line!r} cannot be read: {error.msg}") from None
    return re.compile("|".join(translate(line, inside=inside) for line in lines), re.DOTALL) if lines else None


def _translate_parts(parts: list[str]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**" and len(parts) > 1:
            regex += ".+" if last else "(?:.*/)?"
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
