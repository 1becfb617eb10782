"""Who made whom, whose history is whose, and what woke what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amplifier_core.triggers import TriggerType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import Delivery, SessionRecord
    from amplifier_core.triggers import TriggerEvent


@dataclass(slots=True)
class Node:
    """One session in the tree; forks stand below the session whose history they share."""

    record: SessionRecord
    woken_by: Delivery | None = None
    children: list[Node] = field(default_factory=list)


def forest(records: Iterable[SessionRecord], deliveries: Iterable[Delivery] = ()) -> list[Node]:
    """Return the trees that `records` form, oldest first; one whose parent is not among them is a root."""
    woken = {delivery.session_id: delivery for delivery in deliveries if delivery.session_id}
    ordered = sorted(records, key=lambda record: (record.created, record.session_id))
    nodes = {record.session_id: Node(record, woken.get(record.session_id)) for record in ordered}
    roots = []
    for node in nodes.values():
        parent = nodes.get(node.record.fork_of or node.record.parent_id or "")
        if parent is None or _is_above(node, parent):
            roots.append(node)
        else:
            parent.children.append(node)
    return roots


def _is_above(node: Node, other: Node) -> bool:
    """Return whether `other` hangs below `node` already: a damaged store must not make a circle."""
    return node is other or any(_is_above(child, other) for child in node.children)


def subtree(roots: Sequence[Node], session_id: str) -> Node | None:
    """Return the node of a session, wherever it is in the trees."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.record.session_id == session_id:
            return node
        waiting.extend(node.children)
    return None


def describe_event(event: TriggerEvent) -> str:
    """Return in a few words what happened."""
    if event.type is TriggerType.FILE_CHANGE:
        return f"file {event.file_path} {event.change_type}"
    if event.type is TriggerType.TIMER:
        return f"timer, tick {event.data.get('tick', '?')}"
    if event.type is TriggerType.SESSION_EVENT:
        return f"event {event.event_name} of {event.source_session_id or 'outside'}"
    if event.type is TriggerType.MANUAL:
        return "by hand"
    return event.source
