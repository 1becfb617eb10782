"""`amplifier why`: what led to an event or a session, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .app import json_option, opened_inbox, plugins_of, run_async
from .output import STATUS_STYLE, console, plural, print_json, session_line, timestamp

if TYPE_CHECKING:
    from rich.text import Text

    from amplifier_core.storage import Delivery

    from ..causes import Link

SHORT = 8
"""Characters of an event's id that are shown."""


@click.command()
@click.argument("asked", metavar="EVENT|SESSION")
@json_option
@click.pass_context
def why(ctx: click.Context, asked: str, as_json: bool) -> None:
    """Tell what led to an event or a session, down from the first event, and what came of it; ▶ marks it.

    EVENT|SESSION is an id or a beginning of one, of four characters or more; the id of a delivery, as
    `amplifier trigger dead` shows it, names its event.
    """
    first, heard = run_async(_explained(ctx, asked))
    if as_json:
        print_json("why/1", {"links": rows(first), "listeners": heard})
        return
    _print(first)
    if heard is not None:
        click.echo(_who_listens(heard))


async def _explained(ctx: click.Context, asked: str) -> tuple[Link, dict[str, list[str]] | None]:
    """Return the first link, and who listens where what was asked for is an event that woke nothing."""
    from ..causes import explain, listeners, walk

    async with opened_inbox(plugins_of(ctx)) as store:
        first = await explain(store, asked)
        [(above, link)] = [(above, link) for above, link in walk(first) if link.asked]
        if link.event is None or link.caused:
            return first, None
        return first, await listeners(store, above.record.project if above and above.record else None)


def _who_listens(heard: dict[str, list[str]]) -> str:
    if not heard:
        return "It woke nothing, and no background session was woken by an event of a session so far."
    lanes = "; ".join(f"{lane} (by {', '.join(names)})" for lane, names in heard.items())
    return f"It woke nothing. Events of sessions have woken {lanes}."


def rows(first: Link) -> list[dict[str, Any]]:
    """Return the links as JSON shows them: in a list, each with the place in it (from 0) of the one above it."""
    from ..causes import walk

    places: dict[Link | None, int | None] = {None: None}
    shown: list[dict[str, Any]] = []
    for above, link in walk(first):
        places[link] = len(shown)
        kind = "event" if link.event else "delivery" if link.delivery else "session"
        row = {"kind": kind, "id": link.key, "above": places[above], "asked": link.asked, "summary": str(line(link))}
        shown.append({**row, "at": link.moment, **_facts(link)})
    return shown


def _facts(link: Link) -> dict[str, Any]:
    if link.event is not None:
        return {"source_session_id": link.event.source_session_id, "cause": link.event.cause, "depth": link.event.depth}
    facts: dict[str, Any] = {"session_id": link.session_id, "status": link.record.status if link.record else None}
    if link.delivery is not None:
        shown = ("delivery_id", "project", "lane", "trigger", "state", "attempts", "reason", "available_at")
        facts |= {name: getattr(link.delivery, name) for name in shown}
        facts["event_id"] = link.delivery.event.event_id
    return facts


def _print(first: Link) -> None:
    """Draw the links as a tree; what is wider than the terminal goes on in the next line."""
    from rich.tree import Tree

    tree = Tree(line(first), guide_style="dim")
    waiting = [(tree, first)]
    while waiting:
        branch, link = waiting.pop()
        waiting.extend((branch.add(line(below)), below) for below in link.caused)
        if link.open:
            branch.add("… and more", style="dim")
    console().print(tree, soft_wrap=False)


def line(link: Link) -> Text:
    """Return a link in one line."""
    from rich.text import Text

    text = _event_line(link) if link.event is not None else _session_line(link)
    return Text.assemble(("▶ ", "bold yellow"), text) if link.asked else text


def _event_line(link: Link) -> Text:
    from rich.text import Text

    from amplifier_core.events import SessionEvent

    from ..lineage import describe_event

    event = link.event
    assert event is not None
    words = f"event {event.name}" if isinstance(event, SessionEvent) else describe_event(event)
    text = Text.assemble((words, "blue"), (f"  {timestamp(event.timestamp)}  {event.event_id[:SHORT]}", "dim"))
    if not link.caused and not link.open:
        text.append("  woke nothing", "dim")
    return text


def _session_line(link: Link) -> Text:
    from rich.text import Text

    from ..lineage import Node

    delivery, text = link.delivery, Text()
    if delivery is not None:
        text.append(_lane(delivery), "cyan").append(f"  {decided(delivery)}", STATUS_STYLE.get(delivery.state, ""))
    if link.session_id is None or (delivery is not None and link.record is None and delivery.state != "done"):
        return text  # where nothing is stored, and nothing was done, there may never have been a session
    text.append("  → " if delivery is not None else "")
    if link.record is not None:
        text.append_text(session_line(Node(link.record)))
        woken_by = link.record.event_id if delivery is None else None
        return text.append(f"  woken by event {woken_by[:SHORT]}, kept no more", "dim") if woken_by else text
    return text.append(link.session_id, "bold").append("  (not stored)", "dim")


def _lane(delivery: Delivery) -> str:
    """Return the background session, and by which of its triggers the event came."""
    return f"{delivery.lane} ({delivery.trigger.removeprefix(f'{delivery.lane}/')})"


def decided(delivery: Delivery) -> str:
    """Return in words what became of a delivery, and why."""
    reason = (delivery.reason or "").strip().splitlines()[:1]
    because = f": {reason[0]}" if reason else ""
    tries = plural(delivery.attempts, "try").replace("trys", "tries")
    if delivery.state == "claimed":
        return f"at work since {timestamp(delivery.updated)}, {tries} so far{because}"
    if delivery.state == "pending":
        due = f", due {timestamp(delivery.available_at)}"
        return f"tried again after {tries}{because}{due}" if delivery.attempts else f"waiting{due}"
    after = f" after {tries}" if delivery.attempts > 1 or delivery.state == "dead" else ""
    return f"{delivery.state}{after}{because}"
