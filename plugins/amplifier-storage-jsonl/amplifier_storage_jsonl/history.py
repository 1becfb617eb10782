"""A session's history: the messages of its own folder after those that it shares with its sources' folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from .files import damaged
from .folder import METADATA
from .records import start_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .folder import SessionFolder
    from .transcript import Contents
    from .tree import Tree


LOST = b"lost"
"""What stands for a line that is missing: no message, so that nobody reads on as if nothing had been there."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages `start` to `stop` of a history, which stand in one folder; the first line there is `first`."""

    folder: SessionFolder
    contents: Contents
    first: int
    start: int
    stop: int

    def lines(self) -> list[bytes]:
        """Return the lines. Raises `StoreDamaged` for one that is bad or missing."""
        return self.contents.message_lines(self.start - self.first, self.stop - self.first)

    def raw(self) -> list[bytes]:
        """Return the lines as they are, good and bad, and `LOST` for each that is missing."""
        there = self.contents.lines[self.start - self.first : self.stop - self.first]
        return there + [LOST] * (self.stop - self.start - len(there))


def segments(
    tree: Tree,
    folder: SessionFolder,
    document: Mapping[str, Any],
    start: int = 0,
    stop: int | None = None,
) -> list[Segment]:
    """Return where the messages from `start` to `stop` stand, the first ones first.

    Raises `StoreDamaged` when a source is gone.
    """
    found: list[Segment] = []
    while True:
        first, contents = start_of(document), folder.contents(document)
        count = first + contents.count
        end = count if stop is None else min(stop, count) if not found else stop
        found.append(Segment(folder, contents, first, max(first, start), max(end, first, start)))
        if first <= start:
            return [segment for segment in reversed(found) if segment.start < segment.stop]
        stop = min(first, end)
        folder, document = source_of(tree, folder, document, [segment.folder for segment in found])


def source_of(
    tree: Tree, folder: SessionFolder, document: Mapping[str, Any], seen: list[SessionFolder]
) -> tuple[SessionFolder, dict[str, Any]]:
    """Return the folder whose messages another one shares. Raises `StoreDamaged` when it is gone, or a fork of it."""
    name = document["fork_of"]
    try:
        source = tree.find(name)
    except (SessionNotFound, ValueError):
        raise damaged(
            folder.path / METADATA,
            f"is a fork of session '{name}', which is gone",
            f"Go on without the messages that they shared: amplifier session repair {folder.session_id}",
        ) from None
    if any(each.path == source.path for each in seen):
        raise damaged(folder.path / METADATA, f"is a fork of session '{name}', which is a fork of it")
    return source, source.document()
