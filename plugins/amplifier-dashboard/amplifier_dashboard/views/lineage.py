"""Show who made, forked and woke whom: the newest sessions with those above them, or the family of one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.frozen import frozen
from amplifier_foundation.operations.sessions import find_session
from amplifier_foundation.sessions.costs import spent_of
from amplifier_foundation.sessions.lineage import above_id, describe_event, forest, shared_part
from amplifier_foundation.sessions.presence import status_of
from amplifier_foundation.sessions.records import agent_of
from amplifier_foundation.sessions.runs import is_run
from amplifier_foundation.sessions.store_views import views_of

from ..pages import Act, Page, View
from ..rendering import render_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from amplifier_core.storage import SessionRecord
    from amplifier_foundation.sessions.lineage import Node

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "lineage.html"
SHOWN = 500
"""Sessions on the page, besides those above them."""
BESIDE = 50
"""Sessions of the same parent that are shown beside the chosen one."""
DEEPEST = 100
"""Levels above a session that are read."""
STEP, HIGH = 24, 34
"""Pixels of a level and of a row."""


@frozen
class Row:
    """One session of the tree.

    `kind` of its edge: `top`, `made`, `fork` or `woken`. `edge` says it in words. `lines` are the x of the lines that
    pass the row, to later sessions beside those above it; `is_last` ends the line to its own siblings.
    """

    record: SessionRecord
    depth: int
    kind: str
    edge: str
    lines: tuple[float, ...]
    is_last: bool
    below: int

    @property
    def x(self) -> float:
        """The x of the line to the session above."""
        return _x(self.depth - 1)

    @property
    def status(self) -> str:
        """The status; `waiting` for an approval."""
        return status_of(self.record)

    @property
    def spent(self) -> str:
        """The time and the cost."""
        return str(spent_of(self.record))

    @property
    def agent(self) -> str:
        """The name of its agent; '' without one."""
        return agent_of(self.record) or ""

    @property
    def path(self) -> str:
        """Its page."""
        return f"/{'flows' if is_run(self.record) else 'sessions'}/{self.record.session_id}"


async def lineage(desk: Desk, place: Place) -> Page:
    """Return the tree of the newest sessions, or with `?session=` that around one."""
    text = place.query.get("session", "").strip()
    chosen = await find_session(desk.store, text) if text else None
    records = await (read_newest(desk) if chosen is None else read_family(desk, chosen))
    woken = await desk.store.deliveries(limit=SHOWN)
    roots = forest(records.values(), woken)
    rows = list(list_rows(roots))
    above = above_id(chosen) if chosen is not None else None
    beside = sum(above is not None and above_id(each) == above for each in records.values())
    values: dict[str, Any] = {
        "rows": rows,
        "chosen": chosen.session_id if chosen is not None else "",
        "is_full": len(rows) >= SHOWN,
        "beside": BESIDE if beside >= BESIDE else 0,
        "shown": SHOWN,
        "step": STEP,
        "high": HIGH,
    }
    parts = {"tree": render_block(TEMPLATE, "tree", values)}
    return Page("Lineage", TEMPLATE, parts, facts={"chosen": chosen})


async def read_newest(desk: Desk) -> dict[str, SessionRecord]:
    """Return the sessions changed last, and those above them."""
    found = await views_of(desk.store).session_page(limit=SHOWN)
    known = {each.session_id: each for each in found}
    for each in found:
        known |= await _read_above(desk, each, known)
    return known


async def read_family(desk: Desk, chosen: SessionRecord) -> dict[str, SessionRecord]:
    """Return a session, those above it, some beside it, and those below it."""
    known = {chosen.session_id: chosen}
    known |= await _read_above(desk, chosen, known)
    waiting = [chosen]
    while waiting and len(known) < SHOWN:
        made = await desk.store.sessions(parent_id=waiting.pop(0).session_id, limit=SHOWN - len(known))
        waiting += [each for each in made if each.session_id not in known]
        known |= {each.session_id: each for each in made}
    if (above := above_id(chosen)) is not None:
        beside = await desk.store.sessions(parent_id=above, limit=BESIDE)
        known |= {each.session_id: each for each in beside}
    return known


async def _read_above(desk: Desk, record: SessionRecord, known: dict[str, SessionRecord]) -> dict[str, SessionRecord]:
    """Return the sessions above one that are not known yet."""
    found: dict[str, SessionRecord] = {}
    with suppress(SessionNotFound):  # it was deleted
        while (above := above_id(record)) is not None and above not in known | found and len(found) < DEEPEST:
            record = found[above] = await desk.store.get(above)
    return found


def list_rows(roots: Sequence[Node]) -> Iterator[Row]:
    """Yield the rows of trees, the newest sessions first; trees may have any depth."""
    waiting: list[tuple[Node, int, tuple[float, ...], bool]] = []

    def add(nodes: Iterable[Node], depth: int, lines: tuple[float, ...]) -> None:
        # `forest` has the oldest first: the last one added, the newest, is the next row
        waiting.extend((node, depth, lines, number == 0) for number, node in enumerate(nodes))

    add(roots, 0, ())
    while waiting:
        node, depth, lines, is_last = waiting.pop()
        kind, edge = describe_edge(node, depth)
        yield Row(node.record, depth, kind, edge, lines, is_last, len(node.children))
        add(node.children, depth + 1, lines if is_last or not depth else (*lines, _x(depth - 1)))


def _x(level: int) -> float:
    return level * STEP + 15.0  # below the mark that opens and closes


def describe_edge(node: Node, depth: int) -> tuple[str, str]:
    """Return how a session came to be: the kind of the edge above it, and words."""
    record = node.record
    if record.fork_of is not None:
        return "fork", f"fork, {shared_part(record)}"
    if record.event_id is not None:
        return "woken", f"woken by {describe_event(node.woken_by.event)}" if node.woken_by else "woken by an event"
    return ("made", "made") if depth else ("top", "")


VIEWS = [View("/lineage", lineage, label="Lineage", key="l")]
ACTS: list[Act] = []
