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

    from amplifier_core.transcript import Message

    from .folder import SessionFolder
    from .transcript import Contents
    from .tree import Tree


LOST = b"lost"
"""What stands for a line that is missing: no message, so that nobody reads on as if nothing had been there."""


@dataclass(frozen=True, slots=True)
class Link:
    """A folder that a history leads through, and the position of the first message there."""

    folder: SessionFolder
    document: Mapping[str, Any]
    first: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages `start` to `stop` of a history, which stand in one folder; the first line there is `first`."""

    folder: SessionFolder
    contents: Contents
    first: int
    start: int
    stop: int

    def raw(self) -> list[bytes]:
        """Return the lines as they are, good and bad, and `LOST` for each that is missing."""
        there = self.contents.lines[self.start - self.first : self.stop - self.first]
        return there + [LOST] * (self.stop - self.start - len(there))


def read(tree: Tree, folder: SessionFolder, start: int, stop: int | None) -> list[Message]:
    """Return the messages from `start` up to `stop` (None: the end). Raises `StoreDamaged`."""
    if stop is not None and start >= stop:
        folder.document()
        return []
    own, *shared = chain(tree, folder, folder.document(), start)
    found = [_own(own, start, stop)]
    for link, after in zip(shared, (own, *shared), strict=False):
        stop = after.first if stop is None else min(stop, after.first)
        found.append(_shared(link, start, stop))
    return [message for messages in reversed(found) for message in messages]


def segments(tree: Tree, folder: SessionFolder, document: Mapping[str, Any]) -> list[Segment]:
    """Return where the messages stand, the first ones first, with all that stands there.

    Raises `StoreDamaged` when a source is gone.
    """
    found: list[Segment] = []
    stop = 0
    for link in chain(tree, folder, document):
        contents = link.folder.contents(link.document)
        stop = min(stop, found[-1].first) if found else link.first + contents.count
        found.append(Segment(link.folder, contents, link.first, link.first, max(stop, link.first)))
    return [segment for segment in reversed(found) if segment.start < segment.stop]


def chain(tree: Tree, folder: SessionFolder, document: Mapping[str, Any], start: int = 0) -> list[Link]:
    """Return the folders that hold the messages from `start` on, the session's own first.

    Raises `StoreDamaged` when one is gone.
    """
    links = [Link(folder, document, start_of(document))]
    while links[-1].first > start:
        folder, document = _source_of(tree, links)
        links.append(Link(folder, document, start_of(document)))
    return links


def _own(link: Link, start: int, stop: int | None) -> list[Message]:
    first = link.first
    if stop is not None and stop <= first:
        return []
    with link.folder.opened(link.document, None if stop is None else stop - first) as transcript:
        end = transcript.count if stop is None else min(stop - first, transcript.count)
        return transcript.messages(max(0, start - first), end, first)


def _shared(link: Link, start: int, stop: int) -> list[Message]:
    first = link.first
    if stop <= first:
        return []
    with link.folder.opened(link.document, stop - first) as transcript:
        return transcript.messages(max(0, start - first), stop - first, first)


def _source_of(tree: Tree, links: list[Link]) -> tuple[SessionFolder, dict[str, Any]]:
    """Return the folder whose messages the last one shares. Raises `StoreDamaged` when it is gone, or a fork of it."""
    folder, name = links[-1].folder, links[-1].document["fork_of"]
    try:
        source = tree.find(name)
    except (SessionNotFound, ValueError):
        raise damaged(
            folder.path / METADATA,
            f"is a fork of session '{name}', which is gone",
            f"Go on without the messages that they shared: amplifier session repair {folder.session_id}",
        ) from None
    if any(each.folder.path == source.path for each in links):
        raise damaged(folder.path / METADATA, f"is a fork of session '{name}', which is a fork of it")
    return source, source.document()
