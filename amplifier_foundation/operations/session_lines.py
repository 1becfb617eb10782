"""Describe a session in one line, as trees show it, without a terminal library: there may be ten thousand lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.utils.secrets import redact_text, redactor

from ..documents.safe_text import one_line, plain
from ..sessions.costs import spent_of
from ..sessions.lineage import shared_part, walk, word_event
from ..sessions.presence import status_of
from ..sessions.records import agent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..sessions.lineage import Node

_DEEPEST = 100
"""Levels with guides of their own; below, the guides of the nearest levels are shown."""
_GUIDE = 4
"""Characters."""


def session_parts(node: Node, hide: Callable[[str], str] = redact_text) -> Iterator[tuple[str, str]]:
    """Yield (text, kind) of each part of a session's line; `kind` is a status, or what the part tells.

    `hide` removes the secrets of events and errors.
    """
    record, spent = node.record, str(spent_of(node.record))
    yield record.session_id, "id"
    yield "  ", ""
    status = status_of(record)
    yield status, status
    turns, messages = record.turn_count, record.message_count
    size = f"{turns} turn{'' if turns == 1 else 's'}, {messages} message{'' if messages == 1 else 's'}"
    yield f"  {size}, {spent}" if spent else f"  {size}", ""
    if agent_of(record):
        yield f"  agent {agent_of(record)}", "agent"
    if record.fork_of:
        yield f"  fork of {record.fork_of}, {shared_part(record)}", "fork"
    if node.woken_by is not None:
        by = one_line(word_event(node.woken_by.event), 200, hide)
        yield f"  woken by {by.removeprefix('by ')}", "event"
    if record.error:
        yield f"  {hide(record.error).splitlines()[0][:100]}", "error"


def tree_lines(nodes: Sequence[Node], title: str) -> Iterator[str]:
    """Yield the lines of a tree as plain text, whatever its depth."""
    hide = _find_redactor(nodes)
    yield plain(title)
    waiting = [("", node, node is nodes[-1]) for node in reversed(nodes)]
    while waiting:
        above, node, is_last = waiting.pop()
        yield plain(f"{above}{'└── ' if is_last else '├── '}{''.join([text for text, _ in session_parts(node, hide)])}")
        below = f"{above}{'    ' if is_last else '│   '}"[-_DEEPEST * _GUIDE :]
        children = node.children
        waiting.extend((below, child, child is children[-1]) for child in reversed(children))


def _find_redactor(nodes: Sequence[Node]) -> Callable[[str], str]:
    """Return what hides the secrets of a tree: one look at all its texts finds that most trees hold none."""
    hide, texts = redactor(), list[str]()
    for _, node in walk(nodes):
        if node.woken_by is not None:
            texts.append(word_event(node.woken_by.event))
        if node.record.error:
            texts.append(node.record.error)
    every = "\n".join(texts)
    return str if hide(every) == every else hide
