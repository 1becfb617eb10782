"""Find deliveries and dead letters, and retry or drop them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import AmplifierError, DeliveryConflict, DeliveryNotFound, SessionConflict, SessionNotFound

from .acting import record_act

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from amplifier_core.storage import Delivery, DurableStore

    from ..sessions.once import Decision, EffectsUncertain
    from .acting import Actor

ALL = 1_000_000
SHORTEST = 4
"""Characters of an id, at least, to name a delivery."""
SHOWN = 8
"""Characters of an id in a line."""


class NothingToDecide(AmplifierError, ValueError):
    """A decision was given for a delivery that waits for none."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(f"{summarize(delivery)} waits for no decision: retry it without one")


class Retried(NamedTuple):
    """What a retry did."""

    due: list[Delivery]
    """The deliveries that are handled again, as they are stored now."""
    uncertain: Mapping[str, EffectsUncertain]
    """The reasons of those left alone, by their ids: an interrupted call with effects needs a decision first."""
    conflicts: list[DeliveryConflict]
    """Why others cannot be handled again: they were claimed, or retried, meanwhile."""


async def find_deliveries(store: DurableStore, ids: Sequence[str]) -> list[Delivery]:
    """Return the deliveries with these ids, each once, dead letters first; four characters of an id are enough.

    Raises `DeliveryNotFound`, and `SessionConflict` when several ids begin so.
    """
    letters = await store.deliveries(state="dead", limit=ALL)
    others: list[Delivery] | None = None
    found = []
    for text in ids:
        matching = _matching(letters, text)
        if not matching:
            others = await store.deliveries(limit=ALL) if others is None else others
            matching = _matching(others, text)
        found.append(the_only(text, matching))
    return list({each.delivery_id: each for each in found}.values())


def _matching(deliveries: Iterable[Delivery], text: str) -> list[Delivery]:
    return [each for each in deliveries if each.delivery_id.startswith(text)] if len(text) >= SHORTEST else []


def the_only(text: str, found: Sequence[Delivery]) -> Delivery:
    """Return the only delivery found for an id. Raises `DeliveryNotFound`, and `SessionConflict` for several."""
    if not found:
        raise DeliveryNotFound(text)
    if len(found) > 1:
        ids = ", ".join(each.delivery_id for each in found[:5])
        raise SessionConflict(text, f"'{text}' begins the ids of several deliveries: {ids}. Type more of the id")
    return found[0]


async def read_dead_letters(
    store: DurableStore, project: str | None = None, bundle: str | None = None, limit: int = ALL
) -> list[Delivery]:
    """Return the dead letters of a project (None: of all) and of a bundle in it, the newest first."""
    count = limit
    while True:
        letters = await store.deliveries(project=project, state="dead", limit=count)
        found = [each for each in letters if bundle in (None, each.queue.rpartition("/")[0])]
        if len(found) >= limit or len(letters) < count:
            return found[:limit]
        count *= 10


async def retry_deliveries(
    store: DurableStore, actor: Actor, deliveries: Sequence[Delivery], decision: Decision | None = None
) -> Retried:
    """Handle dead, refused or skipped deliveries again, as if for the first time, and postponed ones before their time.

    The caller then calls `wake`.

    A delivery whose session was interrupted in a call with effects once needs a decision, `done` or `again`, and is
    left alone without one. Raises `NothingToDecide` for a delivery that needs none, before any change.
    """
    from ..background.giving_back import is_postponed, make_due, waits_with_queue
    from ..sessions.once import decide_effects

    uncertain = await find_uncertain(store, deliveries)
    if decision is not None:
        for each in deliveries:
            if each.delivery_id not in uncertain:
                raise NothingToDecide(each)
        for each in deliveries:
            await decide_effects(store, str(each.session_id), decision)
        uncertain = {}
    done = Retried([], uncertain, [])
    for each in deliveries:
        if each.delivery_id in uncertain:
            continue
        try:
            done.due.append(await store.redeliver(each.delivery_id))
        except DeliveryConflict as error:
            if not is_postponed(each) or not (waits_with_queue(each) or await make_due(store, each.delivery_id)):
                done.conflicts.append(error)
                continue
            done.due.extend(await store.find_deliveries(each.delivery_id))
        await _record(store, actor, "trigger.retry", each, **({"decision": decision} if decision else {}))
    return done


async def find_uncertain(store: DurableStore, deliveries: Iterable[Delivery]) -> dict[str, EffectsUncertain]:
    """Return the deliveries that wait for a decision on an interrupted call, with the reason."""
    from ..sessions.once import EffectsUncertain, check_effects

    uncertain = {}
    for each in deliveries:
        try:
            if each.session_id is not None:
                await check_effects(store, await store.get(each.session_id))
        except SessionNotFound:
            continue
        except EffectsUncertain as error:
            uncertain[each.delivery_id] = error
    return uncertain


async def drop_deliveries(
    store: DurableStore, actor: Actor, deliveries: Iterable[Delivery], reason: str
) -> AsyncIterator[Delivery | DeliveryConflict]:
    """Discard dead or waiting deliveries, each once; give each as it is stored now, or why it cannot be discarded."""
    for delivery_id, each in {each.delivery_id: each for each in deliveries}.items():
        try:
            dropped = await store.drop(delivery_id, reason=reason)
        except DeliveryConflict as error:  # it was claimed, answered or dropped meanwhile
            yield error
            continue
        await _record(store, actor, "trigger.drop", each, reason=reason)
        yield dropped


async def _record(store: DurableStore, actor: Actor, act: str, delivery: Delivery, **facts: Any) -> None:
    about = {"delivery_id": delivery.delivery_id, "session_id": delivery.session_id, **facts}
    place = {"project": delivery.project, "queue": delivery.queue}
    await record_act(store, actor, act, delivery.delivery_id, **place, **about)


def summarize(delivery: Delivery) -> str:
    """Return a delivery in one line: the beginning of its id, its queue, and its event."""
    from ..sessions.lineage import describe_event

    return f"{delivery.delivery_id[:SHOWN]} {delivery.queue}: {describe_event(delivery.event)}"


def delivery_facts(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as JSON shows it."""
    from ..sessions.lineage import describe_event

    shown = ("delivery_id", "project", "queue", "trigger", "state", "attempts", "session_id", "reason", "updated")
    event = {"event_id": delivery.event.event_id, "summary": describe_event(delivery.event)}
    return {
        "background_session": delivery.queue.rpartition("/")[2],
        **{name: getattr(delivery, name) for name in shown},
        **event,
        "data": dict(delivery.event.data),
    }
