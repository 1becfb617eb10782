"""Drop the mistakes of a bundle's document, so that the rest of it is checked as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..documents.document import read_document
from ..documents.positions import Positions, parse_path
from ..documents.problems import BundleProblemsError
from .build import build_bundle

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from ..documents.document import Document
    from ..documents.positions import KeyPath
    from ..documents.problems import Problem
    from .model import Bundle

ROUNDS = 8
"""Dropping one mistake may uncover another: a required key is missing then."""
UNNAMED = "unnamed"
"""The name of a bundle without a valid one."""

_OF_THE_ENTRY = frozenset({"AMP101", "AMP105", "AMP107", "AMP108"})
"""Codes of mistakes that make the mapping around them useless."""


def build_leniently(path: Path) -> tuple[Bundle, list[Problem]]:
    """Return the bundle in a file without its mistakes, and those.

    Raises `BundleProblemsError` if nothing can be saved.
    """
    mistakes: list[Problem] = []
    dropped: set[KeyPath] = set()
    for _ in range(ROUNDS):
        try:
            bundle = build_bundle(_without(read_document(path), dropped), path.parent)
        except BundleProblemsError as error:
            mistakes = mistakes or list(error.problems)
            data = read_document(path).data
            found = {_find_culprit(data, each) for each in error.problems if each.severity == "error"}
            if data is None or found <= dropped:
                break
            dropped |= found
        else:
            bundle.problems = [each for each in bundle.problems if each not in mistakes]
            return bundle, mistakes
    raise BundleProblemsError(mistakes)


def _find_culprit(data: Any, problem: Problem) -> KeyPath:
    """Return the path of the value to drop because of a problem."""
    path = parse_path(problem.path)
    if path[:1] == ("bundle",):
        return ("bundle",)
    if problem.code in _OF_THE_ENTRY:
        path = path[:-1]
    end = 0
    for part in path:
        inside = isinstance(data, dict) and part in data
        if not inside and not (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            break
        data, end = data[part], end + 1
    return path[:end]


def _without(document: Document, dropped: Collection[KeyPath]) -> Document:
    """Return a document without the values at `dropped`; its positions and key paths stay those of the file."""
    if not dropped or document.data is None:
        return document
    later_first = sorted(dropped, key=lambda path: [(str(type(part)), part) for part in path], reverse=True)
    for path in later_first:
        holder: Any = document.data
        for part in path[:-1]:
            holder = holder[part]
        if path == ("bundle",):
            holder["bundle"] = {"name": UNNAMED}
        elif path:
            del holder[path[-1]]
    document.positions = _shift(document.positions, dropped)
    document.problems, document.is_changed = [], True
    return document


def _shift(positions: Positions, dropped: Collection[KeyPath]) -> Positions:
    """Return positions by the paths after the removal of list items; `written` has the paths in the file."""
    removed: dict[KeyPath, list[int]] = {}
    for path in dropped:
        if path and isinstance(path[-1], int):
            removed.setdefault(path[:-1], []).append(path[-1])
    shifted = Positions(positions.file)
    for old, new in ((positions.keys, shifted.keys), (positions.values, shifted.values)):
        for path, spot in old.items():
            moved = _move(path, removed)
            if moved is not None:
                new[moved] = spot
                if moved != path:
                    shifted.written[moved] = path
    return shifted


def _move(path: KeyPath, removed: dict[KeyPath, list[int]]) -> KeyPath | None:
    """Return a path after the removal of list items; None for one in a removed item."""
    moved: list[str | int] = []
    for depth, part in enumerate(path):
        gone: Sequence[int] = removed.get(path[:depth], ())
        if part in gone:
            return None
        moved.append(part - sum(each < part for each in gone) if isinstance(part, int) else part)
    return tuple(moved)
