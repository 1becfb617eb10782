"""What can be wrong with a stored session, and how it is put right; whatever is cut away is kept beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.storage import Finding

from .files import read_all
from .folder import METADATA, TRANSCRIPT
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


@dataclass(frozen=True, slots=True)
class _Examined:
    document: dict[str, Any]
    """As it is to be."""
    parts: list[Segment]
    findings: list[Finding]

    def needs_cuts(self) -> bool:
        return any(finding.kind in _OF_MESSAGES for finding in self.findings)


def examine(sessions: Sessions, session_id: str) -> list[Finding]:
    """Return what is wrong. Raises `StoreDamaged` for `metadata.json`: only a backup helps there."""
    folder = sessions.tree.find(session_id)
    with folder.reading():
        return _examined(sessions.tree, folder).findings


def mend(sessions: Sessions, session_id: str) -> list[Finding]:
    """Put it right and return what was wrong.

    Shared messages are not changed where they stand: a session gets its own copy before some of them are cut, and so do
    the forks of one whose messages are cut.
    """
    folder = sessions.tree.find(session_id)
    with sessions.tree.locked():
        with folder.reading():
            cuts = _examined(sessions.tree, folder).needs_cuts()
        for fork in sessions.forks_of(session_id) if cuts else ():
            sessions.detach(fork)
        with folder.locked() as lock:
            examined = _examined(sessions.tree, folder)
            _mend_document(folder, examined)
            if examined.needs_cuts():
                _mend_messages(folder, lock, examined)
            return examined.findings


def _examined(tree: Tree, folder: SessionFolder) -> _Examined:
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


def _mend_document(folder: SessionFolder, examined: _Examined) -> None:
    if folder.document() != examined.document:
        before = f"{folder.path}/{METADATA}"
        keep_cut(before, read_all(before))
        folder.save(examined.document)


def _mend_messages(folder: SessionFolder, lock: int, examined: _Examined) -> None:
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
