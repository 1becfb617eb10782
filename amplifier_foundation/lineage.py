"""Who made whom, whose history is whose, where two part, and what woke what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.triggers import TriggerType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.storage import Delivery, SessionRecord
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent


@dataclass(slots=True)
class Node:
    """One session in the tree; forks stand below the session whose history they share."""

    record: SessionRecord
    woken_by: Delivery | None = None
    children: list[Node] = field(default_factory=list)


class Parting(NamedTuple):
    """How two histories go apart."""

    shared: int
    """How many messages they begin with are the same."""
    own: tuple[list[Message], list[Message]]
    """What each says after those."""


def parting(first: Sequence[Message], second: Sequence[Message]) -> Parting:
    """Return where two histories part."""
    pairs = enumerate(zip(first, second, strict=False))
    shared = next((position for position, (a, b) in pairs if a != b), min(len(first), len(second)))
    return Parting(shared, (list(first[shared:]), list(second[shared:])))


def forest(records: Iterable[SessionRecord], deliveries: Iterable[Delivery] = ()) -> list[Node]:
    """Return the trees that `records` form, oldest first; one whose parent is not among them is a root."""
    woken = {delivery.session_id: delivery for delivery in deliveries if delivery.session_id}
    ordered = sorted(records, key=lambda record: (record.created, record.session_id))
    nodes = {record.session_id: Node(record, woken.get(record.session_id)) for record in ordered}
    roots: list[Node] = []
    for node in nodes.values():
        above = nodes.get(above_id(node.record) or "")
        (roots if above is None else above.children).append(node)
    return _without_circles(roots, nodes)


def above_id(record: SessionRecord) -> str | None:
    """Return the id of the session that `record` stands below: whose history it shares, else who made it."""
    return record.fork_of or record.parent_id


def shared_part(record: SessionRecord) -> str:
    """Return which messages of its source a fork shares, in words; `session show` numbers them."""
    return {0: "shares nothing", 1: "shares m1"}.get(record.fork_at or 0, f"shares m1\N{EN DASH}m{record.fork_at}")


def walk(roots: Iterable[Node]) -> Iterator[tuple[int, Node]]:
    """Yield every node with its depth, each above its children; however deep the trees are."""
    waiting = [(0, node) for node in reversed(list(roots))]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting.extend((depth + 1, child) for child in reversed(node.children))


def _without_circles(roots: list[Node], nodes: Mapping[str, Node]) -> list[Node]:
    """Cut each circle that a damaged store holds, at one of its sessions, which becomes a root."""
    reached = {node.record.session_id for _, node in walk(roots)}
    for session_id in nodes:
        if session_id not in reached:
            root = _in_circle(session_id, nodes)
            nodes[above_id(root.record) or ""].children.remove(root)
            roots.append(root)
            reached |= {below.record.session_id for _, below in walk([root])}
    return roots


def _in_circle(session_id: str, nodes: Mapping[str, Node]) -> Node:
    passed: set[str] = set()
    while session_id not in passed:
        passed.add(session_id)
        session_id = above_id(nodes[session_id].record) or ""
    return nodes[session_id]


def subtree(roots: Sequence[Node], session_id: str) -> Node | None:
    """Return the node of a session, wherever it is in the trees."""
    return next((node for _, node in walk(roots) if node.record.session_id == session_id), None)


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
