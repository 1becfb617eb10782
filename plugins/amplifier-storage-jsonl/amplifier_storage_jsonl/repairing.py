"""Examine and repair a stored session; removed data is kept aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen
from amplifier_core.storage import Finding

from .files import read_all
from .folder import TRANSCRIPT
from .history import LOST, segments
from .lines import is_good
from .records import start_of
from .transcript import keep_cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .folder import SessionFolder
    from .history import Segment
    from .sessions import Sessions
    from .tree import Tree

_CUT = f"cut it away, and keep it in {TRANSCRIPT}.cut-<time>"
_OF_MESSAGES = ("torn_tail", "bad_message")


@frozen
class _Examined:
    document: dict[str, Any]
    """As it is to be."""
    parts: list[Segment]
    findings: list[Finding]

    def needs_cuts(self) -> bool:
        return any(finding.kind in _OF_MESSAGES for finding in self.findings)


def examine(sessions: Sessions, session_id: str) -> list[Finding]:
    """Return the faults. Raises `StoreDamaged` for `metadata.json`: only a backup helps there."""
    folder = sessions.tree.find(session_id)
    with folder.reading():
        return _examine(sessions.tree, folder).findings


def repair(sessions: Sessions, session_id: str) -> list[Finding]:
    """Apply the remedies and return the findings.

    Shared messages never change in their folder: before a cut, this session gets its own copy of them, and each fork of
    it a copy of its.
    """
    folder = sessions.tree.find(session_id)
    with sessions.tree.hold_lock():
        with folder.reading():
            cuts = _examine(sessions.tree, folder).needs_cuts()
        for fork in sessions.forks_of(session_id) if cuts else ():
            sessions.detach(fork)
        with folder.hold_lock() as lock:
            examined = _examine(sessions.tree, folder)
            if folder.document() != examined.document:
                keep_cut(folder.metadata, read_all(folder.metadata))
                folder.save(examined.document)
            if examined.needs_cuts():
                _repair_messages(folder, lock, examined)
            return examined.findings


def _examine(tree: Tree, folder: SessionFolder) -> _Examined:
    document = folder.document()
    findings: list[Finding] = []
    parent = document.get("parent_id")
    if isinstance(parent, str) and not tree.has(parent):
        findings.append(Finding("missing_parent", f"its parent '{parent}' is gone", "forget the parent"))
        document = {**document, "parent_id": None}
    source = document.get("fork_of")
    if source and not tree.has(source):
        remedy = "go on with the messages of its own" if start_of(document) else "forget the source"
        findings.append(Finding("missing_source", f"it is a fork of '{source}', which is gone", remedy, 0))
        document = {**document, "fork_of": None, "fork_at": None}
    parts = segments(tree, folder, document)
    findings += [finding for part in parts for finding in _bad_messages(part)]
    findings += _at_the_end(folder, document)
    return _Examined(document, parts, findings)


def _bad_messages(part: Segment) -> Iterator[Finding]:
    for position, line in enumerate(part.raw(), part.start):
        if position - part.first >= len(part.contents.lines):
            gone = f"the messages from m{position + 1} on were acknowledged, and are gone"
            yield Finding("torn_tail", gone, "go on with those before them", position)
            return
        if not is_good(line):
            yield Finding("bad_message", f"message m{position + 1} is not what was written", _CUT, position)


def _at_the_end(folder: SessionFolder, document: dict[str, Any]) -> Iterator[Finding]:
    contents = folder.contents(document)
    position = start_of(document) + len(contents.lines)
    if contents.torn:
        yield Finding("torn_tail", f"the last write was cut after {len(contents.torn)} bytes", _CUT, position)
    elif contents.unended:
        yield Finding("torn_tail", "the end of the last line is missing", "end it", position - 1)


def _repair_messages(folder: SessionFolder, lock: int, examined: _Examined) -> None:
    own = [part for part in examined.parts if part.folder is folder]
    shared = [line for part in examined.parts if part.folder is not folder for line in part.raw()]
    lines = [line for part in own for line in part.raw()]
    torn = folder.contents(examined.document).torn
    cut = [line for line in (*shared, *lines) if line != LOST and not is_good(line)] + ([torn] if torn else [])
    if cut:
        keep_cut(folder.own, b"\n".join(cut) + b"\n")
    kept, kept_shared = list(filter(is_good, lines)), list(filter(is_good, shared))
    if len(kept_shared) == len(shared):
        folder.rewrite(lock, kept)
    else:
        document = {**examined.document, "fork_at": len(kept_shared), "whole": True}
        folder.make_whole(lock, document, kept_shared + kept)
