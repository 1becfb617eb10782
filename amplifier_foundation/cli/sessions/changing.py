"""Run `amplifier session fork`, `rename` and `repair`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...operations import sessions
from ...operations.sessions import fork_session, rename_session, repair_session, session_facts
from ..app import find_session, json_option, person, plugins_of, split_point, storage_plugins, use_store
from ..completing import complete_sessions
from ..loops import run_in_loop
from ..output import plural, print_json

if TYPE_CHECKING:
    from ...sessions.history import Orphans


@click.command(epilog='Example: amplifier session fork last@2 --name "second try"')
@click.argument("point", metavar="ID[@POINT]", shell_complete=complete_sessions)
@click.option("--name", default="", help="Name of the fork; its id begins with it.")
@click.option(
    "--orphans",
    type=click.Choice(["complete", "remove", "error"]),
    default="remove",
    show_default=True,
    help="Tool calls without a result at the point: record them as interrupted, fork before them, or refuse.",
)
@json_option
@click.pass_context
@run_in_loop
async def fork(ctx: click.Context, point: str, name: str, orphans: Orphans, as_json: bool) -> None:
    """Fork a session: the fork shares its messages, and the source never changes.

    POINT is the number of a turn (its end), the id of a message such as m12, or now.
    """
    where, plugins = split_point(point), plugins_of(ctx)
    async with use_store(plugins) as store:
        source = await find_session(store, where.session)
        record, place = await fork_session(store, person(), source, where, name=name, orphans=orphans, plugins=plugins)
    if as_json:
        print_json(
            "session.fork/1", {**session_facts(record), "left_out": place.left_out, "completed": len(place.added)}
        )
        return
    click.echo(record.session_id)
    click.echo(f"shares {plural(place.at, 'message')} of {record.fork_of}", err=True)
    if place.left_out:
        click.echo(f"{plural(place.left_out, 'message')} left out, from an open tool call or prompt on", err=True)
    if place.added:
        click.echo(f"{plural(len(place.added), 'unfinished tool call')} recorded as interrupted", err=True)
    click.echo(f'Ask it something: amplifier run --resume {record.session_id} "…"', err=True)


@click.command(epilog='Example: amplifier session rename last "a better name"')
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.argument("name")
@json_option
@click.pass_context
@run_in_loop
async def rename(ctx: click.Context, session_id: str, name: str, as_json: bool) -> None:
    """Rename a session; its id stays."""
    name = check_name(name)
    async with use_store(storage_plugins(ctx)) as store:
        found = (await find_session(store, session_id)).session_id
        record = await rename_session(store, person(), found, name)
    if as_json:
        print_json("session.rename/1", session_facts(record))
    else:
        click.echo(f"{record.session_id}: {record.name}")


def check_name(name: str) -> str:
    """Return a session's name without surrounding space. Raises `click.UsageError` when it cannot be a name."""
    try:
        return sessions.check_name(name)
    except sessions.InvalidName as error:
        raise click.UsageError(str(error)) from None


@click.command(epilog="Example: amplifier session repair last --yes")
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.option("-y", "--yes", is_flag=True, help="Repair the faults.")
@json_option
@click.pass_context
@run_in_loop
async def repair(ctx: click.Context, session_id: str, yes: bool, as_json: bool) -> None:
    """Find the faults of a stored session and print the remedies; with --yes, apply them."""
    from ...sessions.repairing import examine

    async with use_store(storage_plugins(ctx)) as store:
        found = (await find_session(store, session_id)).session_id
        findings = await (repair_session(store, person(), found) if yes else examine(store, found))
    if as_json:
        listed = [asdict(finding) for finding in findings]
        print_json("session.repair/1", {"session_id": found, "mended": yes and bool(listed), "findings": listed})
        return
    for finding in findings:
        place = "" if finding.position is None else f"m{finding.position + 1}"
        place = f"{place}: " if place and place not in finding.message.split() else ""
        click.echo(f"{place}{finding.message} ({finding.kind}); remedy: {finding.remedy}")
    if not findings:
        click.echo(f"{found}: no faults", err=True)
    elif yes:
        click.echo(f"{found}: {plural(len(findings), 'fault')} repaired", err=True)
    else:
        click.echo(f"nothing was changed. Repair it with: amplifier session repair {found} --yes", err=True)
