"""Read a session's history: first the messages shared with the folders of its sources, then its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.frozen import frozen

from .files import damage_error
from .folder import METADATA
from .records import start_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.transcript import Message

    from .folder import SessionFolder
    from .transcript import Contents
    from .tree import Tree


LOST = b"lost"
"""Stands for a missing line: it is no message, so no reader passes over the gap."""


@frozen
class Link:
    """Name a folder of a history, and the position of its first message."""

    folder: SessionFolder
    document: Mapping[str, Any]
    first: int


@frozen
class Segment:
    """Hold messages `start` to `stop` of a history, all in one folder; the first line there is message `first`."""

    folder: SessionFolder
    contents: Contents
    first: int
    start: int
    stop: int

    def raw(self) -> list[bytes]:
        """Return the lines unchecked, with `LOST` for each missing one."""
        there = self.contents.lines[self.start - self.first : self.stop - self.first]
        return there + [LOST] * (self.stop - self.start - len(there))


def read(tree: Tree, folder: SessionFolder, start: int, stop: int | None) -> list[Message]:
    """Return the messages from `start` up to `stop` (None: the end). Raises `StoreDamaged`."""
    if stop is not None and start >= stop:
        folder.document()
        return []
    found: list[list[Message]] = []
    for link in chain(tree, folder, folder.document(), start):
        found.append(_read_link(link, start, stop, is_last=not found))
        stop = link.first if stop is None else min(stop, link.first)
    return [message for messages in reversed(found) for message in messages]


def segments(tree: Tree, folder: SessionFolder, document: Mapping[str, Any]) -> list[Segment]:
    """Return the segments of the whole history, in order.

    Raises `StoreDamaged` for a missing source.
    """
    found: list[Segment] = []
    stop = 0
    for link in chain(tree, folder, document):
        contents = link.folder.contents(link.document)
        stop = min(stop, found[-1].first) if found else link.first + contents.count
        found.append(Segment(link.folder, contents, link.first, link.first, max(stop, link.first)))
    return [segment for segment in reversed(found) if segment.start < segment.stop]


def chain(tree: Tree, folder: SessionFolder, document: Mapping[str, Any], start: int = 0) -> list[Link]:
    """Return the folders with the messages from `start` on, the session's own first.

    Raises `StoreDamaged` for a missing source.
    """
    links = [Link(folder, document, start_of(document))]
    while links[-1].first > start:
        folder, document = _source_of(tree, links)
        links.append(Link(folder, document, start_of(document)))
    return links


def _read_link(link: Link, start: int, stop: int | None, *, is_last: bool) -> list[Message]:
    first = link.first
    if stop is not None and stop <= first:
        return []
    with link.folder.open_transcript(link.document, None if stop is None else stop - first) as transcript:
        # a caller may ask for more than the last part holds; a shorter shared part has lost messages
        end = transcript.count if stop is None else stop - first
        return transcript.messages(max(0, start - first), min(end, transcript.count) if is_last else end, first)


def _source_of(tree: Tree, links: list[Link]) -> tuple[SessionFolder, dict[str, Any]]:
    """Return the source of the last link. Raises `StoreDamaged` if it is missing, or a fork of this session."""
    folder, name = links[-1].folder, links[-1].document["fork_of"]
    try:
        source = tree.find(name)
    except (SessionNotFound, ValueError):
        raise damage_error(
            folder.path / METADATA,
            f"is a fork of session '{name}', which is gone",
            f"Go on without the messages that they shared: amplifier session repair {folder.session_id}",
        ) from None
    if any(each.folder.path == source.path for each in links):
        raise damage_error(folder.path / METADATA, f"is a fork of session '{name}', which is a fork of it")
    return source, source.document()
