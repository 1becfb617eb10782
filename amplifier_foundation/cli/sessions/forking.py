"""`amplifier session fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..app import json_option, opened_store, plugins_of, run_async, session_by_prefix, split_point
from ..output import plural, print_json
from .facts import facts

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord

    from ...forks import ForkPlace, Orphans


@click.command()
@click.argument("point", metavar="ID[@POINT]")
@click.option("--name", default="", help="Name the fork so, and begin its id with it.")
@click.option(
    "--orphans",
    type=click.Choice(["complete", "remove", "error"]),
    default="remove",
    show_default=True,
    help="Tool calls without a result at the point: record them as interrupted, fork before them, or refuse.",
)
@json_option
@click.pass_context
def fork(ctx: click.Context, point: str, name: str, orphans: Orphans, as_json: bool) -> None:
    """Fork a session; nothing is copied, and the source is not touched.

    POINT is the number of a turn (its end), the id of a message such as m12, or now.
    """
    record, place = run_async(_fork(ctx, point, name, orphans))
    if as_json:
        result = {"left_out": place.left_out, "completed": len(place.added)}
        print_json("session.fork/1", {**facts(record), **result})
        return
    click.echo(record.session_id)
    for line in _told(record, place):
        click.echo(line, err=True)


async def _fork(ctx: click.Context, text: str, name: str, orphans: Orphans) -> tuple[SessionRecord, ForkPlace]:
    from ...forks import fork_place, fork_there

    point = split_point(text)
    plugins = plugins_of(ctx)
    async with opened_store(plugins) as store:
        source = await session_by_prefix(store, point.session)
        place = await fork_place(store, source, turn=point.turn, message=point.message, orphans=orphans)
        return await fork_there(store, source, place, name=name, plugins=plugins), place


def _told(record: SessionRecord, place: ForkPlace) -> list[str]:
    told = [f"shares {plural(place.at, 'message')} of {record.fork_of}"]
    if place.left_out:
        told.append(f"{plural(place.left_out, 'message')} left out: a tool call in flight and what belongs to it")
    if place.added:
        told.append(f"{plural(len(place.added), 'tool call')} in flight recorded as interrupted")
    return [*told, f'Ask it something: amplifier run --resume {record.session_id} "…"']
