"""Write the tree of sessions as a diagram in text: Mermaid and Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.permissions.hidden import replace_unprintable

from .costs import spent_of
from .lineage import describe_event, shared_part, walk
from .presence import status_of
from .records import agent_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .lineage import Node

_COLOURS = {
    "running": "#0e7490",
    "completed": "#15803d",
    "failed": "#b91c1c",
    "cancelled": "#a16207",
    "interrupted": "#a16207",
    "waiting": "#a16207",
    "idle": "#6b7280",
}


class _Edge(NamedTuple):
    source: str
    target: str
    label: str
    kind: str
    """`made`, `fork` or `woke`."""


def mermaid(roots: Sequence[Node]) -> str:
    """Return a Mermaid flowchart: solid arrows for parents, thick for forks, dotted for events."""
    arrows = {"made": "-->", "fork": "==>", "woke": "-.->"}
    lines = ["flowchart LR"]
    lines += [f'  {name}["{"<br/>".join(map(mermaid_text, _label(node)))}"]' for name, node in _number_nodes(roots)]
    for name, event in _causes(roots):
        lines.append(f'  {name}(["{mermaid_text(event)}"])')
    for edge in _edges(roots):
        label = f'|"{mermaid_text(edge.label)}"|' if edge.label else ""
        lines.append(f"  {edge.source} {arrows[edge.kind]}{label} {edge.target}")
    lines += [
        f"  style {name} stroke:{_COLOURS[status]},stroke-width:2px"
        for name, node in _number_nodes(roots)
        if (status := status_of(node.record)) in _COLOURS
    ]
    return "\n".join(lines)


def dot(roots: Sequence[Node]) -> str:
    """Return a Graphviz digraph: solid edges for parents, bold for forks, dotted for events."""
    styles = {"made": "solid", "fork": "bold", "woke": "dotted"}
    lines = ["digraph sessions {", "  rankdir=LR;", '  node [shape=box, style=rounded, fontname="Helvetica"];']
    for name, node in _number_nodes(roots):
        label = "\\n".join(map(_dot_text, _label(node)))
        lines.append(f'  {name} [label="{label}", color="{_COLOURS.get(status_of(node.record), "#6b7280")}"];')
    lines += [f'  {name} [label="{_dot_text(event)}", shape=ellipse];' for name, event in _causes(roots)]
    for edge in _edges(roots):
        label = f', label="{_dot_text(edge.label)}"' if edge.label else ""
        lines.append(f"  {edge.source} -> {edge.target} [style={styles[edge.kind]}{label}];")
    return "\n".join([*lines, "}"])


def _number_nodes(roots: Sequence[Node]) -> Iterator[tuple[str, Node]]:
    for number, (_, node) in enumerate(walk(roots)):
        yield f"s{number}", node


def _causes(roots: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Yield the events of woken sessions."""
    for name, node in _number_nodes(roots):
        if node.woken_by is not None:
            yield f"e{name}", describe_event(node.woken_by.event)


def _edges(roots: Sequence[Node]) -> Iterator[_Edge]:
    names = {node.record.session_id: name for name, node in _number_nodes(roots)}
    for name, node in _number_nodes(roots):
        for child in node.children:
            below = names[child.record.session_id]
            if child.record.fork_of == node.record.session_id:
                yield _Edge(name, below, f"fork, {shared_part(child.record)}", "fork")
            else:
                yield _Edge(name, below, "", "made")
        if node.woken_by is not None:
            source = names.get(node.woken_by.event.source_session_id or "")
            if source is not None:
                yield _Edge(source, f"e{name}", "", "woke")
            yield _Edge(f"e{name}", name, "woke", "woke")


def _label(node: Node) -> list[str]:
    record = node.record
    size = f"{status_of(record)}, turns: {record.turn_count}, messages: {record.message_count}"
    agent = f"agent {agent_of(record)}" if agent_of(record) else ""
    return [line for line in (record.session_id, agent, size, str(spent_of(record))) if line]


def mermaid_text(text: str) -> str:
    """Return text without markup: Mermaid reads `#34;` as HTML's `&#34;`."""
    return "".join(each if each.isalnum() or each in " ,.:/_-" else f"#{ord(each)};" for each in text)


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return replace_unprintable(escaped, lambda each: " ")
