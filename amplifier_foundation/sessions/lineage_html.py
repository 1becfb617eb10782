"""Write the lineage of sessions as one HTML page, without other files, network or a way for messages to run code."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from amplifier_core.utils.secrets import redact_text

from ..documents.json_text import redact_json
from .costs import format_cost, spent_of
from .exporting import call_line, title_of
from .history import final_answer, is_user_turn, text_of
from .lineage import describe_event, walk
from .presence import KEY as PROCESS
from .presence import other_host, status_of
from .records import agent_of
from .trace import trace_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from .lineage import Node
    from .trace import Span

MESSAGES = 20_000
"""The most messages on one page; the sessions changed last come first."""
_LEGEND = (
    ("completed", "✓", "done"),
    ("failed", "✗", "failed"),
    ("running", "▶", "running"),
    ("waiting", "?", "waits"),
    ("skipped", "-", "skipped"),
    ("open", "·", "not done"),
)
"""The class, the sign and the word for each state of a task."""
_SCRIPTS = ("model.js", "lineage.js", "charts.js", "reader.js", "start.js")
TEXT = 20_000
"""The most characters of one message on a page."""
OUTCOME = 160
"""The most characters of an outcome in a row."""


async def own_messages(store: SessionStore, roots: Sequence[Node]) -> dict[str, list[Message]]:
    """Return the own messages of each session of the trees; a fork beside its source is read from its point on."""
    nodes = {node.record.session_id: node for _, node in walk(roots)}
    histories: dict[str, list[Message]] = {}
    room = MESSAGES
    for session_id, node in sorted(nodes.items(), key=lambda item: item[1].record.updated, reverse=True):
        start = _start(node, nodes)
        if node.record.message_count - start <= room:
            histories[session_id] = await store.read(session_id, start)
            room -= len(histories[session_id])
    return histories


def _start(node: Node, nodes: Mapping[str, Any]) -> int:
    return (node.record.fork_at or 0) if node.record.fork_of in nodes else 0


def lineage_page(
    roots: Sequence[Node],
    histories: Mapping[str, Sequence[Message]],
    title: str,
    pictures: Mapping[str, str] | None = None,
) -> str:
    """Return the page: the tree, a timeline, the events, and the messages in `histories` (see `own_messages`).

    `pictures` has the workflows of runs as SVG, by the ids of their sessions; it stands in the page as it is.

    The page holds its content as data without secrets, and a script inserts it as text. A policy in the page forbids
    every other script and all loading.
    """
    parts = files("amplifier_foundation.sessions") / "lineage_page"
    page, style, *scripts = (
        (parts / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *_SCRIPTS)
    )
    script = "\n".join(scripts)
    nodes = {node.record.session_id: node for _, node in walk(roots)}
    sessions = [
        _describe_session(depth, node, nodes, histories.get(node.record.session_id)) for depth, node in walk(roots)
    ]
    told = {name: [_describe_message(each) for each in messages] for name, messages in histories.items()}
    data = {"title": title, "sessions": sessions}
    index = redact_json(json.dumps(data, ensure_ascii=True, default=str, separators=(",", ":")))
    texts = json.dumps(told, ensure_ascii=True, default=str, separators=(",", ":"))  # each text is redacted
    values = {
        "policy": f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        "title": escape(title),
        "workflows": "".join(_show_workflow(nodes[run].record, svg) for run, svg in (pictures or {}).items()),
        "style": style,
        "data": _make_inert(index),
        "messages": _make_inert(texts),
        "script": script,
    }
    head, *rest = page.split("{{")
    return head + "".join(values[name] + text for name, _, text in (each.partition("}}") for each in rest))


def _make_inert(data: str) -> str:
    """Return JSON in which no browser finds markup."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _show_workflow(record: SessionRecord, svg: str) -> str:
    name, run = escape(redact_text(record.name)), escape(record.session_id)
    legend = " ".join(f'<span class="{state}">{sign} {word}</span>' for state, sign, word in _LEGEND)
    lines = '<span class="order">─▶ next</span> <span class="fork">┄▶ fork: begins with that session</span>'
    return (
        f'<section class="workflow" data-run="{run}"><h2>Workflow {name}</h2><p class="legend">{legend} {lines}</p>'
        f'<div class="picture" tabindex="0">{svg}</div></section>'
    )


def _digest(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


def _describe_session(
    depth: int, node: Node, nodes: Mapping[str, Node], messages: Sequence[Message] | None
) -> dict[str, Any]:
    record = node.record
    start = _start(node, nodes)
    spent, woken = spent_of(record), None
    if node.woken_by is not None:
        event = node.woken_by.event
        woken = {
            "what": describe_event(event),
            "type": event.type.value,
            "by": event.source_session_id,
            "at": event.timestamp.timestamp(),
            "state": node.woken_by.state,
        }
    told = {
        "id": record.session_id,
        "depth": depth,
        "name": record.name,
        "status": status_of(record),
        "error": record.error,
        "bundle": record.bundle,
        "parent": record.parent_id,
        "fork_of": record.fork_of,
        "fork_at": record.fork_at,
        "created": record.created.timestamp(),
        "updated": record.updated.timestamp(),
        "agent": agent_of(record),
        "host": other_host(str(record.metadata.get(PROCESS) or "")),
        "lasted": spent.duration,
        "cost": format_cost(spent.usage) if spent.usage else "",
        "turns": record.turn_count,
        "count": record.message_count,
        "woken": woken,
        "start": start,
        "outcome": _outcome(record, messages or ()),
        "trace": None if messages is None else _describe_trace(node, messages[(record.fork_at or 0) - start :]),
    }
    return {name: value for name, value in told.items() if value not in (None, "", 0)}


def _outcome(record: SessionRecord, messages: Sequence[Message]) -> str:
    """Return the first line of the error or of the answer."""
    text = redact_text(record.error or final_answer(messages) or "").strip()
    line = text.partition("\n")[0]
    return line if len(line) <= OUTCOME else f"{line[: OUTCOME - 1]}…"


def _describe_trace(node: Node, own: Sequence[Message]) -> dict[str, Any] | None:
    """Return the trace of a session as rows of values, which `charts.js` names; None without any step."""
    trace = trace_session(node.record, own, [each.record for each in node.children if each.record.fork_of is None])
    if not trace.spans:
        return None
    told = trace.to_dict()
    names = ("kind", "name", "count", "seconds", "untimed", "tokens_in", "tokens_out", "cost")
    sums = [[each[name] for name in names] for each in told["sums"]]
    return {"sums": sums, "rest": told["rest"], "notes": told["notes"], "spans": [*map(_describe_span, trace.spans)]}


def _describe_span(span: Span) -> list[Any]:
    usage = span.usage
    tokens, cost = (usage.input_tokens + usage.output_tokens, format_cost(usage)) if usage else (0, "")
    return [span.kind, span.name, span.message, span.start, span.seconds, span.is_bound, tokens, cost, span.session_id]


def _describe_message(message: Message) -> dict[str, Any]:
    text = redact_text(text_of(message))  # before it is cut: half of a secret is not recognised
    if len(text) > TEXT:
        text = f"{text[:TEXT]}\n… ({len(text) - TEXT} more characters)"
    role, title = str(message.get("role")), redact_text(title_of(message))
    told = {
        "role": role,
        "title": title if title != role else "",
        "hook": role == "user" and not is_user_turn(message),
        "text": text,
        "calls": [redact_text(call_line(call)) for call in message.get("tool_calls") or ()],
    }
    return {name: value for name, value in told.items() if value}
