"""Find files by patterns as in .gitignore, in the order of their paths."""

from __future__ import annotations

import fnmatch
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from .closed import Closed
from .failures import FileToolError, InvalidInput
from .folder import Folder, InnerPath, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders to skip, unless the search begins there."""
_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")
LONGEST = 1_000
"""Characters of a pattern."""


class Found(NamedTuple):
    """A file of a walk: its path, and the path to open (the target of a link). A folder has no path to open."""

    parts: tuple[str, ...]
    path: InnerPath | None


class Glob:
    """A pattern: `*`, `?`, `[a-z]` within a name, `**` for any folders, `{a,b}` for alternatives.

    A pattern without `/` fits a name at any depth. Raises `InvalidInput` for one that leads out of the folder.
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_split_pattern(each) for each in _expand_braces(pattern)]

    def fits(self, parts: Sequence[str]) -> bool:
        """Return whether the path with these parts fits."""
        return any(self._match_parts(segments, parts) for segments in self._alternatives)

    @staticmethod
    def _match_parts(segments: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
        """Return whether parts match segments; like a state machine, in a time without exponential growth."""
        reached = _skip_any(segments, {0})  # positions in the segments after the parts so far
        for part in parts:
            moved = set()
            for position in reached - {len(segments)}:
                segment = segments[position]
                if segment is None:
                    moved.add(position)
                elif segment.match(part):
                    moved.add(position + 1)
            reached = _skip_any(segments, moved)
        return len(segments) in reached


def find_files(
    folder: Folder, given: str, pattern: str, max_results: int, closed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fitting files below `given`, sorted by path; `truncated` if there are more.

    Secrets and `closed` paths are left out; `skipped` counts them.
    """
    base, glob, left_out = folder.resolve(given), Glob(pattern), Closed(closed)
    if not folder.is_folder(base):
        raise FileToolError("NotADirectoryError", f"{base} is a file; glob looks for files in a folder")
    fitting = (each for each in walk(folder, base.parts) if glob.fits(each.parts[len(base.parts) :]))
    found = list(islice((show(each.parts) for each in fitting if not left_out.leaves_out(each)), max_results + 1))
    files = found[:max_results]
    return {"files": files, "count": len(files), "truncated": len(found) > max_results, **left_out.remark()}


def walk(
    folder: Folder, base: tuple[str, ...], skips: Callable[[Found], bool] = lambda found: False
) -> Iterator[Found]:
    """Yield every file below `base`, sorted by path; the walk follows no links to folders, and `skips` some entries."""
    waiting = [Found(base, None)]
    while waiting:
        found = waiting.pop()
        if found.path is None:
            waiting.extend(each for each in reversed(_list_folder(folder, found.parts)) if not skips(each))
        else:
            yield found


def _list_folder(folder: Folder, parts: tuple[str, ...]) -> list[Found]:
    """Return the entries of a folder in the order of whole paths: `a.txt` before `a/b`."""
    entries = []
    try:
        with folder.open_folder(parts) as descriptor, os.scandir(descriptor) as scanned:
            for entry in scanned:
                below = (*parts, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        entries.append((entry.name + "/", Found(below, None)))
                elif (path := _resolve_entry(folder, entry, below)) is not None:
                    entries.append((entry.name, Found(below, path)))
    except OSError:
        return []  # gone or not readable: the search goes on elsewhere
    return [found for _, found in sorted(entries, key=lambda entry: entry[0])]


def _resolve_entry(folder: Folder, entry: os.DirEntry[str], parts: tuple[str, ...]) -> InnerPath | None:
    """Return the path of a file, or of a link's target; None for anything else."""
    if not entry.is_symlink():
        return InnerPath(parts) if entry.is_file(follow_symlinks=False) else None
    try:
        path = folder.resolve("/".join(parts))
        folder.open_file(path).close()
    except (FileToolError, OSError):
        return None
    return path


def _expand_braces(pattern: str) -> list[str]:
    """Return a pattern for each alternative of `{a,b}`."""
    if len(pattern) > LONGEST:
        raise InvalidInput(f"the pattern has {len(pattern)} characters, {LONGEST} are allowed; search in steps")
    waiting, done = [pattern], []
    while waiting:
        each = waiting.pop()
        braces = next((found for found in _BRACES.finditer(each) if "," in found[1]), None)
        if braces is None:
            done.append(each)
        else:
            waiting += [each[: braces.start()] + option + each[braces.end() :] for option in braces[1].split(",")]
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise InvalidInput(f"pattern {pattern!r} has more than {_MAX_ALTERNATIVES} alternatives; search in steps")
    return done


def _split_pattern(pattern: str) -> list[re.Pattern[str] | None]:
    """Return a pattern for each part of a path, None for any number of parts."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if not names or pattern.startswith("/") or ".." in names:
        raise InvalidInput(f"not a pattern below a folder: {pattern!r}; name it from `path` on, as in src/**/*.py")
    if "/" not in pattern:
        names.insert(0, "**")
    if names[-1] == "**":
        names.append("*")
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _skip_any(segments: Sequence[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """Add the positions after each `**`, as it may stand for no part."""
    for position in sorted(reached):
        while position < len(segments) and segments[position] is None:
            position += 1
            reached.add(position)
    return reached
