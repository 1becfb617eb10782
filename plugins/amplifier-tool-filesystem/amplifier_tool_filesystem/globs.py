"""Finding files: patterns as .gitignore has them, and a walk in the order of paths."""

from __future__ import annotations

import fnmatch
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from .failures import Failure, InvalidInput
from .folder import Folder, Place, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that nobody looks for files in, unless they are where the search begins."""
_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Found(NamedTuple):
    """A file that a walk met: where it lies, and the place to open, another one for a link. A folder has no place."""

    parts: tuple[str, ...]
    place: Place | None


class Glob:
    """A pattern: `*`, `?`, `[a-z]` within a name, `**` for any folders, `{a,b}` for alternatives.

    One without `/` fits a name at any depth. Raises `InvalidInput` for one that leads out of the folder.
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_segments(each) for each in _alternatives(pattern)]

    def fits(self, parts: Sequence[str]) -> bool:
        """Say whether the path with these parts fits."""
        return any(_fits(segments, parts) for segments in self._alternatives)


def find_files(folder: Folder, given: str, pattern: str, max_results: int) -> dict[str, Any]:
    """Return the files below `given` that fit, sorted by path; `truncated` says that there are more."""
    base, glob = folder.locate(given), Glob(pattern)
    if not folder.is_folder(base):
        raise Failure("NotADirectoryError", f"{base} is a file; glob looks for files in a folder")
    fitting = (show(each.parts) for each in walk(folder, base.parts) if glob.fits(each.parts[len(base.parts) :]))
    found = list(islice(fitting, max_results + 1))
    files = found[:max_results]
    return {"files": files, "count": len(files), "truncated": len(found) > max_results}


def walk(folder: Folder, base: tuple[str, ...]) -> Iterator[Found]:
    """Yield every file below `base`, sorted by path; links to folders are not followed."""
    waiting = [Found(base, None)]
    while waiting:
        found = waiting.pop()
        if found.place is None:
            waiting.extend(reversed(_entries(folder, found.parts)))
        else:
            yield found


def _entries(folder: Folder, parts: tuple[str, ...]) -> list[Found]:
    """Return what is in a folder in the order of whole paths: `a.txt` before `a/b`."""
    entries = []
    try:
        with folder.opened(parts) as descriptor, os.scandir(descriptor) as scanned:
            for entry in scanned:
                below = (*parts, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        entries.append((entry.name + "/", Found(below, None)))
                elif (place := _file(folder, entry, below)) is not None:
                    entries.append((entry.name, Found(below, place)))
    except OSError:
        return []  # gone, or not ours to read: the search goes on elsewhere
    return [found for _, found in sorted(entries, key=lambda entry: entry[0])]


def _file(folder: Folder, entry: os.DirEntry[str], parts: tuple[str, ...]) -> Place | None:
    if not entry.is_symlink():
        return Place(parts) if entry.is_file(follow_symlinks=False) else None
    try:
        place = folder.locate("/".join(parts))
        folder.open_file(place).close()
    except (Failure, OSError):
        return None
    return place


def _alternatives(pattern: str) -> list[str]:
    waiting, done = [pattern], []
    while waiting:
        each = waiting.pop()
        braces = _BRACES.search(each)
        if braces is None:
            done.append(each)
        else:
            waiting += [each[: braces.start()] + option + each[braces.end() :] for option in braces[1].split(",")]
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise InvalidInput(f"pattern {pattern!r} has more than {_MAX_ALTERNATIVES} alternatives; search in steps")
    return done


def _segments(pattern: str) -> list[re.Pattern[str] | None]:
    """Return a pattern for each part of a path, None for any number of them."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if not names or pattern.startswith("/") or ".." in names:
        raise InvalidInput(f"not a pattern below a folder: {pattern!r}; name it from `path` on, as in src/**/*.py")
    if "/" not in pattern:
        names.insert(0, "**")
    if names[-1] == "**":
        names.append("*")
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _fits(segments: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    reached = _past_any(segments, {0})
    for part in parts:
        reached = _past_any(segments, _after(segments, reached, part))
    return len(segments) in reached


def _after(segments: Sequence[re.Pattern[str] | None], reached: set[int], part: str) -> set[int]:
    moved = set()
    for position in reached - {len(segments)}:
        segment = segments[position]
        if segment is None:
            moved.add(position)
        elif segment.match(part):
            moved.add(position + 1)
    return moved


def _past_any(segments: Sequence[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """Add the places that are reached because `**` may stand for nothing."""
    for position in sorted(reached):
        while position < len(segments) and segments[position] is None:
            position += 1
            reached.add(position)
    return reached
