"""Build the trees of sessions from parents, forks and events; compare two histories."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.frozen import slotted
from amplifier_core.storage import SpawnedSessions
from amplifier_core.triggers import TriggerType
from amplifier_core.utils.secrets import redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.storage import Delivery, SessionRecord, SessionStore
    from amplifier_core.transcript import Message
    from amplifier_core.triggers import TriggerEvent


@slotted
class Node:
    """One session in the tree; a fork stands below its source."""

    record: SessionRecord
    woken_by: Delivery | None = None
    children: list[Node] = field(default_factory=list)


class Parting(NamedTuple):
    """The common beginning of two histories, and the rest of each."""

    shared: int
    """The number of equal messages at the beginning."""
    own: tuple[list[Message], list[Message]]
    """The messages of each after that point."""


def parting(first: Sequence[Message], second: Sequence[Message]) -> Parting:
    """Compare two histories."""
    pairs = enumerate(zip(first, second, strict=False))
    shared = next((position for position, (a, b) in pairs if a != b), min(len(first), len(second)))
    return Parting(shared, (list(first[shared:]), list(second[shared:])))


def forest(records: Iterable[SessionRecord], deliveries: Iterable[Delivery] = ()) -> list[Node]:
    """Return the trees of `records`, oldest first; a session without its parent among them is a root."""
    woken = {delivery.session_id: delivery for delivery in deliveries if delivery.session_id}
    ordered = sorted(records, key=lambda record: (record.created, record.session_id))
    nodes = {record.session_id: Node(record, woken.get(record.session_id)) for record in ordered}
    roots: list[Node] = []
    for node in nodes.values():
        above = nodes.get(above_id(node.record) or "")
        (roots if above is None else above.children).append(node)
    return [*roots, *_cut_circles(roots, nodes)]


def above_id(record: SessionRecord) -> str | None:
    """Return the id of the session above `record` in the tree: the source of a fork, else the parent."""
    return record.fork_of or record.parent_id


async def read_below(store: SessionStore, session_id: str) -> list[SessionRecord]:
    """Return all sessions below a session, those above first, without forks and sessions of events."""
    found = await _read_spawned(store, session_id)
    for each in found:  # it grows meanwhile
        found += await _read_spawned(store, each.session_id)
    return found


async def _read_spawned(store: SessionStore, session_id: str) -> list[SessionRecord]:
    if isinstance(store, SpawnedSessions):
        return await store.spawned(session_id)
    made = await store.sessions(parent_id=session_id)
    return [each for each in made if each.fork_of is None and each.event_id is None]


def shared_part(record: SessionRecord) -> str:
    """Describe the shared messages of a fork, numbered as in `session show`."""
    return {0: "shares nothing", 1: "shares m1"}.get(record.fork_at or 0, f"shares m1\N{EN DASH}m{record.fork_at}")


def walk(roots: Iterable[Node]) -> Iterator[tuple[int, Node]]:
    """Yield every node with its depth, parents before their children; trees may have any depth."""
    waiting = [(0, node) for node in reversed(list(roots))]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting.extend((depth + 1, child) for child in reversed(node.children))


def _cut_circles(roots: list[Node], nodes: Mapping[str, Node]) -> Iterator[Node]:
    """Cut each circle of parents in a damaged store; yield the session at the cut, a root from then on."""
    reached = {node.record.session_id for _, node in walk(roots)}
    for session_id in nodes:
        if session_id in reached:
            continue
        passed: set[str] = set()
        while session_id not in passed:  # up, until a session of the circle comes round again
            passed.add(session_id)
            session_id = above_id(nodes[session_id].record) or ""
        root = nodes[session_id]
        nodes[above_id(root.record) or ""].children.remove(root)
        reached |= {below.record.session_id for _, below in walk([root])}
        yield root


def subtree(roots: Sequence[Node], session_id: str) -> Node | None:
    """Return the node of a session, at any depth."""
    return next((node for _, node in walk(roots) if node.record.session_id == session_id), None)


def describe_event(event: TriggerEvent) -> str:
    """Describe an event in a few words, without secrets."""
    return redact_text(word_event(event))


def word_event(event: TriggerEvent) -> str:
    """Do as `describe_event` does, with the secrets: for many events whose texts are redacted together."""
    if event.type is TriggerType.FILE_CHANGE:
        return f"file {event.file_path} {event.change_type}"
    if event.type is TriggerType.TIMER:
        return f"timer, tick {event.data.get('tick', '?')}"
    if event.type is TriggerType.SESSION_EVENT:
        return f"event {event.event_name} of {event.source_session_id or 'outside'}"
    if event.type is TriggerType.ISSUE_EVENT and "issue_id" in event.data:
        return f"issue {event.data['issue_id']} {event.data.get('state')}: {event.data.get('title')}"
    if event.type is TriggerType.MANUAL:
        return "by hand"
    return str(event.source or event.type.value)  # an earlier version has stored any source
