"""Run `amplifier why`: explain an event or a session by its causes and effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amplifier_core.ids import host_of
from amplifier_core.utils.secrets import redact_text

from ..operations.sessions import LAST
from .app import find_session, json_option, storage_plugins, use_inbox
from .completing import complete_sessions
from .loops import run_reading
from .output import STATUS_STYLE, console, plural, print_json, session_line, timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from amplifier_core.storage import Delivery

    from ..background.provenance import Link

SHORT = 8
"""Characters of an event's id in a line."""


@click.command(epilog="Example: amplifier why last")
@click.argument("asked", metavar="EVENT|SESSION", shell_complete=complete_sessions)
@json_option
@click.pass_context
@run_reading
async def why(ctx: click.Context, asked: str, as_json: bool) -> None:
    """Explain an event or a session: the chain from the first event down, and the results; ▶ marks it.

    EVENT|SESSION is an id, or its first four characters or more, or `last`: the last changed session of this project.
    A delivery's id, as shown by `amplifier trigger dead`, stands for its event.
    """
    from rich.tree import Tree

    from ..background.provenance import explain, listeners, walk

    heard: dict[str, list[str]] | None = None
    async with use_inbox(storage_plugins(ctx)) as store:
        first = await explain(store, (await find_session(store, asked)).session_id if asked == LAST else asked)
        [(above, link)] = [(above, link) for above, link in walk(first) if link.asked]
        if link.event is not None and not link.caused:
            heard = await listeners(store, above.record.project if above and above.record else None)
    if as_json:
        print_json("why/2", {"links": rows(first), "listeners": heard})
        return
    tree = Tree(line(first), guide_style="dim")
    waiting = [(tree, first)]
    while waiting:
        branch, link = waiting.pop()
        waiting.extend((branch.add(line(below)), below) for below in link.caused)
        if link.open:
            branch.add("… and more", style="dim")
    console().print(tree, soft_wrap=False)
    if heard:
        queues = "; ".join(f"{queue} (by {', '.join(names)})" for queue, names in heard.items())
        click.echo(f"It woke no background session. Events of sessions have woken {queues}.")
    elif heard is not None:
        click.echo("It woke no background session, and no event of a session has woken one so far.")


def rows(first: Link) -> list[dict[str, Any]]:
    """Return the links as JSON shows them: a list, each with the index of the link above it."""
    from ..background.provenance import walk

    places: dict[Link | None, int | None] = {None: None}
    shown: list[dict[str, Any]] = []
    for above, link in walk(first):
        places[link] = len(shown)
        kind = "event" if link.event else "delivery" if link.delivery else "session"
        row: dict[str, Any] = {"kind": kind, "id": link.key, "above": places[above], "asked": link.asked}
        row |= {"summary": str(line(link)), "at": link.moment}
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
        shown.append(row)
    return shown


def line(link: Link) -> Text:
    """Return a link in one line."""
    from rich.text import Text

    text = _event_line(link) if link.event is not None else _session_line(link)
    return Text.assemble(("▶ ", "bold yellow"), text) if link.asked else text


def _event_line(link: Link) -> Text:
    from rich.text import Text

    from amplifier_core.events import SessionEvent

    from ..sessions.lineage import describe_event

    event = link.event
    assert event is not None
    words = f"event {event.name}" if isinstance(event, SessionEvent) else describe_event(event)
    text = Text.assemble((words, "blue"), (f"  {timestamp(event.timestamp)}  {event.event_id[:SHORT]}", "dim"))
    if not link.caused and not link.open:
        text.append("  woke nothing", "dim")
    return text


def _session_line(link: Link) -> Text:
    from rich.text import Text

    from ..sessions.lineage import Node

    delivery, text = link.delivery, Text()
    if delivery is not None:
        trigger = delivery.trigger.removeprefix(f"{delivery.queue}/")
        text.append(f"{delivery.queue} ({trigger})", "cyan")
        text.append(f"  {describe_state(delivery)}", STATUS_STYLE.get(delivery.state, ""))
    if link.session_id is None or (delivery is not None and link.record is None and delivery.state != "done"):
        return text  # nothing is stored and nothing was done: there may never have been a session
    text.append("  → " if delivery is not None else "")
    if link.record is not None:
        text.append_text(session_line(Node(link.record)))
        woken_by = link.record.event_id if delivery is None else None
        return text.append(f"  woken by event {woken_by[:SHORT]} (no longer stored)", "dim") if woken_by else text
    return text.append(link.session_id, "bold").append("  (not stored)", "dim")


def describe_claims(delivery: Delivery) -> str:
    """Return who claimed a delivery on a shared store, epoch by epoch; '' for a store of one host."""
    owners: Sequence[str] = getattr(delivery, "owners", ())
    first = delivery.epoch - len(owners) + 1
    if len(owners) == 1 and first == 1:
        return f"on {host_of(owners[0])}"
    return ", ".join(f"epoch {first + at} on {host_of(owner)}" for at, owner in enumerate(owners))


def describe_state(delivery: Delivery) -> str:
    """Return the state of a delivery in words, with its reason."""
    reason = redact_text(delivery.reason or "").strip().splitlines()[:1]
    because = f": {reason[0]}" if reason else ""
    attempts = plural(delivery.attempts, "attempt")
    if hosts := describe_claims(delivery):
        because = f"{because} ({hosts})"
    if delivery.state == "claimed":
        return f"at work since {timestamp(delivery.updated)}, {attempts} so far{because}"
    if delivery.state == "pending":
        due = f", due {timestamp(delivery.available_at)}"
        return f"retried after {attempts}{because}{due}" if delivery.attempts else f"waiting{due}"
    after = f" after {attempts}" if delivery.attempts > 1 or delivery.state == "dead" else ""
    return f"{delivery.state}{after}{because}"
