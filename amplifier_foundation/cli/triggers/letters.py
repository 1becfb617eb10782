"""`amplifier trigger dead`, `retry` and `drop`: what was given up, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amplifier_core.errors import DeliveryNotFound, SessionConflict

from ..app import bundle_at, bundle_option, json_option, opened_inbox, plugins_of, run_async, wake
from ..output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import Delivery, DurableStore

ALL = 1_000_000
SHORTEST = 4
"""Characters of an id that name a delivery."""
SHOWN = 8
"""Characters of an id that are shown, or more where those are not enough to tell one from another."""

all_option = click.option("--all", "everywhere", is_flag=True, help="Of every folder, not of this one alone.")


class Place(NamedTuple):
    """Whose deliveries: those of a project (None: of all), and of one bundle where it is named."""

    project: str | None
    bundle: str | None = None

    def holds(self, delivery: Delivery) -> bool:
        """Return whether the delivery came to a background session there."""
        return self.bundle is None or delivery.lane.rpartition("/")[0] == self.bundle


@click.command()
@bundle_option
@all_option
@json_option
@click.pass_context
def dead(ctx: click.Context, bundle_path: str | None, everywhere: bool, as_json: bool) -> None:
    """List the events that were given up, the newest first: of this folder, or of the background sessions of BUNDLE."""
    letters = run_async(_dead(ctx, bundle_path, everywhere=everywhere))
    if as_json:
        print_json("trigger.dead/1", [facts(each) for each in letters])
        return
    length = _length([each.delivery_id for each in letters])
    print_table(
        ("ID", "WHEN", "SESSION", "EVENT", "TRIES", "REASON"),
        (_cells(each, length) for each in letters),
        empty="Nothing was given up." if everywhere else "Nothing was given up here. Elsewhere: trigger dead --all",
    )


@click.command()
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--all", "every", is_flag=True, help="Every event of this folder that was given up.")
@bundle_option
@click.pass_context
def retry(ctx: click.Context, ids: tuple[str, ...], every: bool, bundle_path: str | None) -> None:
    """Have events that were given up, refused or skipped handled after all, as if they had never been tried.

    ID is the beginning of an id that `amplifier trigger dead --all` shows, of four characters or more.
    """
    if bool(ids) == every:
        raise click.UsageError("name the events by their ids, which amplifier trigger dead shows, or say --all")
    outcomes = run_async(_retry(ctx, ids, bundle_path))
    for delivery, runs in outcomes:
        follows = "is handled now" if runs else "is handled at the next: amplifier up"
        session = f", in its session {delivery.session_id}" if delivery.session_id else ""
        click.echo(f"{delivery.delivery_id[:SHOWN]} {_words(delivery)} {follows}{session}")
    if not outcomes:
        click.echo("Nothing was given up here.", err=True)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="dropped by hand", show_default=True, help="What amplifier why tells of it.")
@click.pass_context
def drop(ctx: click.Context, ids: tuple[str, ...], reason: str) -> None:
    """Have events that were given up, or wait, not be handled; nothing of them is listed as dead any more."""
    for delivery in run_async(_drop(ctx, ids, reason)):
        click.echo(f"{delivery.delivery_id[:SHOWN]} {_words(delivery)} is skipped: {reason}")


async def _dead(ctx: click.Context, bundle_path: str | None, *, everywhere: bool) -> list[Delivery]:
    place = Place(None) if everywhere else await _place(ctx, bundle_path)
    async with opened_inbox(plugins_of(ctx)) as store:
        return await _dead_at(store, place)


async def _place(ctx: click.Context, bundle_path: str | None) -> Place:
    """Return where a bundle's events come to; without one, this folder, whatever is in it."""
    from ...paths import project_of

    if bundle_path is None:
        return Place(project_of())
    bundle = await bundle_at(bundle_path, plugins_of(ctx))
    return Place(project_of(bundle.base_path), bundle.name)


async def _dead_at(store: DurableStore, place: Place) -> list[Delivery]:
    letters = await store.deliveries(project=place.project, state="dead", limit=ALL)
    return [each for each in letters if place.holds(each)]


async def _retry(ctx: click.Context, ids: Sequence[str], bundle_path: str | None) -> list[tuple[Delivery, bool]]:
    """Make the deliveries due; return each with whether a process runs that handles it now."""
    place = await _place(ctx, bundle_path) if not ids else Place(None)
    async with opened_inbox(plugins_of(ctx)) as store:
        chosen = await _chosen(store, ids) if ids else (await _dead_at(store, place))[::-1]
        due = [await store.redeliver(each.delivery_id) for each in chosen]
    lanes = dict.fromkeys((each.project, each.lane) for each in due)
    runs = {(project, lane): await wake(project, lane.rpartition("/")[2]) for project, lane in lanes}
    return [(each, runs[each.project, each.lane]) for each in due]


async def _drop(ctx: click.Context, ids: Sequence[str], reason: str) -> list[Delivery]:
    async with opened_inbox(plugins_of(ctx)) as store:
        return [await store.drop(each.delivery_id, reason=reason) for each in await _chosen(store, ids)]


async def _chosen(store: DurableStore, ids: Sequence[str]) -> list[Delivery]:
    """Return what the ids name, each once; dead letters before others. Raises before anything is changed."""
    letters = await store.deliveries(state="dead", limit=ALL)
    others = None if all(_named(letters, text) for text in ids) else await store.deliveries(limit=ALL)
    found = [_one(text, _named(letters, text) or _named(others or (), text)) for text in ids]
    return list({each.delivery_id: each for each in found}.values())


def _named(deliveries: Iterable[Delivery], text: str) -> list[Delivery]:
    return [each for each in deliveries if each.delivery_id.startswith(text)] if len(text) >= SHORTEST else []


def _one(text: str, found: Sequence[Delivery]) -> Delivery:
    if not found:
        raise DeliveryNotFound(text)
    if len(found) > 1:
        ids = ", ".join(each.delivery_id for each in found[:5])
        raise SessionConflict(text, f"'{text}' begins several deliveries: {ids}. Give more of the id")
    return found[0]


def _length(ids: Sequence[str]) -> int:
    """Return how many characters tell the ids apart."""
    return next((length for length in range(SHOWN, 64) if len({each[:length] for each in ids}) == len(ids)), 64)


def _words(delivery: Delivery) -> str:
    from ...lineage import describe_event

    return f"{delivery.lane}: {describe_event(delivery.event)}"


def _cells(delivery: Delivery, length: int) -> tuple[str, ...]:
    from ...lineage import describe_event

    return (
        delivery.delivery_id[:length],
        timestamp(delivery.updated),
        delivery.lane,
        describe_event(delivery.event),
        str(delivery.attempts),
        (delivery.reason or "").partition("\n")[0],
    )


def facts(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as JSON shows it."""
    from ...lineage import describe_event

    shown = ("delivery_id", "project", "lane", "trigger", "state", "attempts", "session_id", "reason", "updated")
    event = {"event_id": delivery.event.event_id, "summary": describe_event(delivery.event)}
    return {**{name: getattr(delivery, name) for name in shown}, **event, "data": dict(delivery.event.data)}
