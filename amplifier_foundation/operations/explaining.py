"""Explain an event or a session: the chain of its causes, its effects, and what people did to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen
from amplifier_core.ids import host_of
from amplifier_core.utils.secrets import redact_text

from .acting import describe_act, read_acts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery, DurableStore

    from ..background.provenance import Link

    ShowTime = Callable[[datetime], str]
    Part = tuple[str, str]
    """A piece of a line, and its kind: a status, or what the piece tells."""

SHORT = 8
"""Characters of an event's id in a line."""


@frozen
class Explanation:
    """A chain of links, from the first event down."""

    first: Link
    acts: Mapping[str, list[SessionEvent]]
    """The acts of people on the deliveries and sessions of links, the oldest first, by the key of the link."""
    listeners: Mapping[str, list[str]] | None
    """The queues that events of sessions have woken, when the asked event has woken none; else None."""


async def explain(store: DurableStore, text: str) -> Explanation:
    """Explain the event, session or delivery with the id `text`, or with an id that begins so.

    Raises `NothingStored`, `InvalidSessionId`, and `SessionConflict` when several ids begin so.
    """
    from ..background import provenance

    first = await provenance.explain(store, text)
    links = list(provenance.walk(first))
    [(above, asked)] = [(above, link) for above, link in links if link.asked]
    heard = None
    if asked.event is not None and not asked.caused:
        heard = await provenance.listeners(store, above.record.project if above and above.record else None)
    acts: dict[str, list[SessionEvent]] = {}
    for link in [link for _, link in links if link.event is None]:
        abouts = {link.session_id, link.delivery.delivery_id if link.delivery else None} - {None}
        found = [act for about in abouts for act in await read_acts(store, str(about))]
        if found:
            acts[link.key] = sorted(found, key=lambda act: act.sequence or 0)
    return Explanation(first, acts, heard)


def find_postponed(explanation: Explanation) -> tuple[list[str], list[str]]:
    """Return the ids of the postponed deliveries, and of those among them that can be tried before their time."""
    from ..background.giving_back import is_postponed, waits_with_queue
    from ..background.provenance import walk

    deliveries = [link.delivery for _, link in walk(explanation.first) if link.delivery is not None]
    postponed = [each for each in deliveries if is_postponed(each)]
    triable = [each.delivery_id for each in postponed if not waits_with_queue(each)]
    return [each.delivery_id for each in postponed], triable


def link_rows(explanation: Explanation, show: ShowTime) -> list[dict[str, Any]]:
    """Return the links as JSON shows them: a list, each with the index of the link above it.

    `more` says that effects of a link were left out.
    """
    from ..background.provenance import walk

    places: dict[Link | None, int | None] = {None: None}
    rows: list[dict[str, Any]] = []
    for above, link in walk(explanation.first):
        places[link] = len(rows)
        kind = "event" if link.event else "delivery" if link.delivery else "session"
        row: dict[str, Any] = {
            "kind": kind,
            "id": link.key,
            "above": places[above],
            "asked": link.asked,
            "more": link.open,
        }
        row |= {"summary": "".join(text for text, _ in link_parts(link, show)), "at": link.moment}
        if link.event is not None:
            row |= {name: getattr(link.event, name) for name in ("source_session_id", "cause", "depth")}
        else:
            row |= {"session_id": link.session_id, "status": link.record.status if link.record else None}
        if link.delivery is not None:
            names = ("delivery_id", "project", "queue", "trigger", "state", "attempts", "reason", "available_at")
            row |= {name: getattr(link.delivery, name) for name in names}
            row["background_session"] = link.delivery.queue.rpartition("/")[2]
            row["event_id"] = link.delivery.event.event_id
            row["owners"] = list(getattr(link.delivery, "owners", ()))
        if link.key in explanation.acts:
            row["acts"] = [{"at": act.timestamp, **act.data} for act in explanation.acts[link.key]]
        rows.append(row)
    return rows


def link_parts(link: Link, show: ShowTime) -> Iterator[Part]:
    """Yield the parts of a link's line; `show` writes its times."""
    if link.asked:
        yield "▶ ", "asked"
    yield from _event_parts(link, show) if link.event is not None else _session_parts(link, show)


def act_parts(act: SessionEvent, show: ShowTime) -> Iterator[Part]:
    """Yield the parts of the line of an act."""
    yield describe_act(act.data), "act"
    yield f"  {show(act.timestamp)}", "note"


def _event_parts(link: Link, show: ShowTime) -> Iterator[Part]:
    from amplifier_core.events import SessionEvent

    from ..sessions.lineage import describe_event

    event = link.event
    assert event is not None
    yield f"event {event.name}" if isinstance(event, SessionEvent) else describe_event(event), "event"
    yield f"  {show(event.timestamp)}  {event.event_id[:SHORT]}", "note"
    if not link.caused and not link.open:
        yield "  woke nothing", "note"


def _session_parts(link: Link, show: ShowTime) -> Iterator[Part]:
    from ..sessions.lineage import Node
    from .session_lines import session_parts

    delivery = link.delivery
    if delivery is not None:
        trigger = delivery.trigger.removeprefix(f"{delivery.queue}/")
        yield f"{delivery.queue} ({trigger})", "queue"
        yield f"  {describe_state(delivery, show)}", delivery.state
    if link.session_id is None or (delivery is not None and link.record is None and delivery.state != "done"):
        return  # nothing is stored and nothing was done: there may never have been a session
    if delivery is not None:
        yield "  → ", ""
    if link.record is None:
        yield link.session_id, "id"
        yield "  (not stored)", "note"
        return
    yield from session_parts(Node(link.record))
    woken_by = link.record.event_id if delivery is None else None
    if woken_by:
        yield f"  woken by event {woken_by[:SHORT]} (no longer stored)", "note"


def describe_claims(delivery: Delivery) -> str:
    """Return who claimed a delivery on a shared store, epoch by epoch; '' for a store of one host."""
    owners: Sequence[str] = getattr(delivery, "owners", ())
    if not any(map(host_of, owners)):  # claims on the store of one host that was copied here
        return ""
    first = delivery.epoch - len(owners) + 1
    if len(owners) == 1 and first == 1:
        return f"on {host_of(owners[0])}"
    return ", ".join(f"epoch {first + at} on {host_of(owner)}" for at, owner in enumerate(owners))


def describe_state(delivery: Delivery, show: ShowTime) -> str:
    """Return the state of a delivery in words, with its reason; `show` writes its times."""
    from ..background.giving_back import due_of

    reason = redact_text(delivery.reason or "").strip().splitlines()[:1]
    because = f": {reason[0]}" if reason else ""
    attempts = f"{delivery.attempts} attempt" + ("" if delivery.attempts == 1 else "s")
    if hosts := describe_claims(delivery):
        because = f"{because} ({hosts})"
    if delivery.state == "claimed":
        return f"at work since {show(delivery.updated)}, {attempts} so far{because}"
    if delivery.state == "pending":
        due = "" if (moment := due_of(delivery)) is None else f", due {show(moment)}"
        return f"retried after {attempts}{because}{due}" if delivery.attempts else f"waiting{because}{due}"
    after = f" after {attempts}" if delivery.attempts > 1 or delivery.state == "dead" else ""
    return f"{delivery.state}{after}{because}"
