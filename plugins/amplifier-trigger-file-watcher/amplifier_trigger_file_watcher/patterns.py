"""Match paths against lists of patterns in the language of .gitignore files.

`*` and `?` stay within a folder, `**` crosses folders. A pattern without a slash matches at any depth, any other is
relative to the folder of the list; a pattern with a slash at its end matches folders alone. `!` takes back, and the
last match decides.

pathspec translates the patterns. `IgnoreRules` asks its expressions about one folder after the other, because
`GitIgnoreSpec.match_file` mixes up a match of the path and a match of a folder above it: with `!a` and then `?/` git
ignores the file `c/a`, and pathspec does not. Of 129,188 generated cases 1,419 differed so, and none here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pathspec import PathSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    "lost+found/",
    *(".amplifier/", "..[0-9][0-9][0-9][0-9]_[0-9][0-9]_[0-9][0-9]_*/"),
    *("*~", "*.sw[a-p]", "4913", ".#*", r"\#*#", ".*.kate-swp", ".goutputstream-*", "*___jb_tmp___", "*___jb_old___"),
    *(".DS_Store", "Thumbs.db"),
)
"""Files that version control, interpreters, amplifier, Kubernetes, editors and desktops write for themselves."""

CACHE_SIZE = 4096
"""Names with a remembered verdict, at most: names in one tree are often the same."""
BEHIND_FOLDER = re.compile(r"\(\?P<\w+>/\)")
"""The part of pathspec's expressions for the slash after a folder, before the paths in it."""
NEVER = "(?!)"
TRAILING_SPACES = re.compile(r"(?<!\\) +$")


class Rule(NamedTuple):
    """One pattern, translated; `names_only` means that the last part of a path is enough to decide."""

    regex: str
    negated: bool
    folders_only: bool
    names_only: bool


class _Group(NamedTuple):
    """Consecutive rules of one sign, joined: one expression for any path, one for folders."""

    negated: bool
    any_path: re.Pattern[str] | None
    folders: re.Pattern[str] | None


class Patterns:
    """Patterns of files: a match of a folder is a match of all its files. Raises `ValueError` for a bad pattern."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [GitIgnoreSpecPattern(_without_newline(line)) for line in lines if translate(line)]
        self._spec = PathSpec(rules, backend="simple")  # the others encode names, and fail at one that is not UTF-8

    def match(self, path: str) -> bool:
        """Return whether a file matches, by its path relative to the folder of the patterns."""
        return self._spec.match_file(_without_newline(path))


class IgnoreRules:
    """Rules of paths to leave out, as git reads them. Raises `ValueError` for a bad pattern.

    A rule decides on a path itself. Ask about the folders above it first: git never looks into an ignored folder.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [translate(line) for line in lines]
        self._groups = [_join(negated, list(group)) for negated, group in groupby(rules, lambda rule: rule.negated)]
        self._groups.reverse()  # the last match decides, so look from the end
        self._names_only = all(rule.names_only for rule in rules)
        self._decide_by_name = lru_cache(CACHE_SIZE)(self._decide)

    def decide(self, path: str) -> bool | None:
        """Return whether a path is ignored, None without any match; the path of a folder ends in a slash."""
        if self._names_only:
            return self._decide_by_name(path[path.rfind("/", 0, -1) + 1 :])
        return self._decide(path)

    def _decide(self, path: str) -> bool | None:
        itself = _without_newline(path.removesuffix("/"))
        for negated, any_path, folders in self._groups:
            if any_path is not None and any_path.search(itself):
                return not negated
            if folders is not None and path.endswith("/") and folders.search(itself):
                return not negated
        return None


@lru_cache(CACHE_SIZE)  # a bundle's patterns are checked, and then used; watchers share the usual ones
def translate(line: str) -> Rule:
    """Return the rule of one pattern. Raises `ValueError` for one that is unreadable or matches nothing."""
    if line.startswith("#"):
        raise ValueError(f"{line!r} is a comment; write '\\{line}' for files that begin with #")
    pattern = TRAILING_SPACES.sub("", _without_newline(line))
    body = pattern.removeprefix("!").removesuffix("/")
    try:
        regex, _ = GitIgnoreSpecPattern.pattern_to_regex(body if body[:1] not in ("!", "#") else f"\\{body}")
        re.compile(regex or "")
    except (ValueError, re.error) as error:
        raise ValueError(f"{line!r} cannot be read: {getattr(error, 'msg', 'it ends in a backslash')}") from None
    if regex is None:
        raise ValueError(f"{line!r} matches nothing")
    return Rule(BEHIND_FOLDER.sub(NEVER, regex), pattern.startswith("!"), pattern.endswith("/"), "/" not in body)


def _join(negated: bool, rules: Sequence[Rule]) -> _Group:
    any_path = "|".join(rule.regex for rule in rules if not rule.folders_only)
    folders = "|".join(rule.regex for rule in rules if rule.folders_only)
    return _Group(negated, re.compile(any_path) if any_path else None, re.compile(folders) if folders else None)


def _without_newline(text: str) -> str:
    """Replace newlines, which pathspec's expressions take for an end, by a character that no file name has."""
    return text.replace("\n", "\0")
