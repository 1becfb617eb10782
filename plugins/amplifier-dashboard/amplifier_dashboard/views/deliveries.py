"""Show one delivery: its steps, its attempts, its event, and the chain of causes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, cast

from amplifier_core.errors import DeliveryConflict, DeliveryNotFound
from amplifier_core.events import SessionEvent
from amplifier_core.ids import host_of
from amplifier_core.utils.secrets import redact_all
from amplifier_foundation.background.provenance import walk
from amplifier_foundation.documents.json_text import dump_json
from amplifier_foundation.operations.acting import Actor, describe_act
from amplifier_foundation.operations.deliveries import drop_deliveries, find_uncertain, retry_deliveries
from amplifier_foundation.operations.explaining import explain
from amplifier_foundation.operations.history import read_history
from amplifier_foundation.operations.running import status_elsewhere, wake
from amplifier_foundation.sessions.lineage import describe_event

from ..links import find_stored
from ..pages import Act, Page, Reply, View
from ..rendering import render_block
from ..steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.storage import Delivery
    from amplifier_foundation.background.provenance import Link
    from amplifier_foundation.operations.explaining import Explanation
    from amplifier_foundation.sessions.once import Decision

    from ..desk import Desk
    from ..pages import Place

TEMPLATE = "delivery.html"
LONGEST = 100_000
"""Characters of an event that are shown."""
MOST = 200
"""Steps, and links of the chain, that are shown."""


class ChainRow(NamedTuple):
    """One link of the chain of causes, at its depth."""

    depth: int
    link: Link
    words: str
    acts: Sequence[tuple[datetime, str]]
    """What people did to it, and when."""
    is_asked: bool


async def show_delivery(desk: Desk, place: Place) -> Page:
    """Return the page of a delivery. Raises `DeliveryNotFound`."""
    delivery = await find_delivery(desk, place.variables["delivery_id"])
    steps = await read_history(desk.store, delivery, tools=True)
    owners: Sequence[str] = getattr(delivery, "owners", ())
    text = dump_json(redact_all(dict(delivery.event.data)), indent=2)
    chain = list(_chain(await explain(desk.store, delivery.event.event_id), delivery))
    shown = [Step(0, each) for each in steps[-MOST:]]
    values = {
        "delivery": delivery,
        "stored": await find_stored(desk.store, [delivery.session_id, *(each.session_id for each in shown)]),
        "read_only": desk.read_only,
        "bundle": delivery.queue.rpartition("/")[0],
        "summary": describe_event(delivery.event),
        "steps": shown,
        "steps_left_out": max(0, len(steps) - MOST),
        "hosts": [(delivery.epoch - len(owners) + 1 + at, host_of(each)) for at, each in enumerate(owners)],
        "data": text[:LONGEST],
        "data_left_out": max(0, len(text) - LONGEST),
        "chain": chain[:MOST],
        "chain_left_out": max(0, len(chain) - MOST),
        "uncertain": (await find_uncertain(desk.store, [delivery])).get(delivery.delivery_id),
    }
    parts = {name: render_block(TEMPLATE, name, values) for name in ("delivery", "steps", "event", "chain")}
    return Page(f"Delivery {delivery.delivery_id[:8]}", TEMPLATE, parts)


async def find_delivery(desk: Desk, delivery_id: str) -> Delivery:
    """Return a delivery by its whole id. Raises `DeliveryNotFound`."""
    found = [each for each in await desk.store.find_deliveries(delivery_id) if each.delivery_id == delivery_id]
    if not found:
        raise DeliveryNotFound(delivery_id)
    return found[0]


def _chain(explanation: Explanation, asked: Delivery) -> Iterator[ChainRow]:
    depths: dict[int, int] = {}
    for above, link in walk(explanation.first):
        depths[id(link)] = depth = depths[id(above)] + 1 if above is not None else 0
        words = ""
        if link.event is not None:
            event = link.event
            words = f"event {event.name}" if isinstance(event, SessionEvent) else describe_event(event)
        acts = [(each.timestamp, describe_act(each.data)) for each in explanation.acts.get(link.key, ())]
        is_asked = link.delivery is not None and link.delivery.delivery_id == asked.delivery_id
        yield ChainRow(depth, link, words, acts, is_asked)


async def retry(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Handle a delivery again; with the `decision` of a person on an interrupted call."""
    delivery = await find_delivery(desk, place.variables["delivery_id"])
    decision = cast("Decision", form["decision"]) if form.get("decision") in ("done", "again") else None
    return Reply(await retry_all(desk, [delivery], decision))


async def retry_all(desk: Desk, deliveries: Sequence[Delivery], decision: Decision | None = None) -> str:
    """Handle deliveries again, and wake their background sessions; return what became of them in words."""
    done = await retry_deliveries(desk.store, Actor(desk.person, "dashboard"), deliveries, decision)
    if not done.due and len(done.conflicts) == 1:
        raise done.conflicts[0]
    queues = dict.fromkeys((each.project, each.queue) for each in done.due)
    runs = [await asyncio.to_thread(wake, project, queue) for project, queue in queues]
    if not all(runs):
        runs = [here or await status_elsewhere(desk.store, *at) != "" for here, at in zip(runs, queues, strict=True)]
    said = f"{_count(done.due)} handled again" if done.due else "Nothing is handled again"
    if done.due and not all(runs):
        said += " by the next: amplifier up"
    if done.uncertain:
        said += f"; {len(done.uncertain)} left alone: an interrupted call needs your decision first"
    return f"{said}." + "".join(f" Not handled: {each}." for each in done.conflicts)


async def drop(desk: Desk, place: Place, form: Mapping[str, str]) -> Reply:
    """Discard a delivery."""
    delivery = await find_delivery(desk, place.variables["delivery_id"])
    return Reply(await drop_all(desk, [delivery], form.get("reason", "")))


async def drop_all(desk: Desk, deliveries: Sequence[Delivery], reason: str) -> str:
    """Discard deliveries; return what became of them in words."""
    reason = reason.strip() or "dropped by hand"
    done = [each async for each in drop_deliveries(desk.store, Actor(desk.person, "dashboard"), deliveries, reason)]
    conflicts = [each for each in done if isinstance(each, DeliveryConflict)]
    dropped = [each for each in done if not isinstance(each, DeliveryConflict)]
    if not dropped and len(conflicts) == 1:
        raise conflicts[0]
    return f"{_count(dropped)} dropped." + "".join(f" Not dropped: {each}." for each in conflicts)


def _count(deliveries: Sequence[Delivery]) -> str:
    return "1 event is" if len(deliveries) == 1 else f"{len(deliveries):,} events are"


VIEWS = [View("/deliveries/{delivery_id}", show_delivery)]
ACTS = [Act("/deliveries/{delivery_id}/retry", retry), Act("/deliveries/{delivery_id}/drop", drop)]
