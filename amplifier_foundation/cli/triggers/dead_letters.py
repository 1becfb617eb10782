"""Run `amplifier trigger dead`, `retry` and `drop`, for events that failed every attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from amplifier_core.errors import DeliveryConflict

from ...operations.deliveries import (
    ALL,
    NothingToDecide,
    delivery_facts,
    drop_deliveries,
    find_deliveries,
    find_uncertain,
    read_dead_letters,
    retry_deliveries,
    summarize,
)
from ...operations.running import status_elsewhere, wake
from .. import exits
from ..app import (
    bundle_option,
    json_option,
    load_bundle_at,
    person,
    plugins_of,
    project_here,
    storage_plugins,
    use_inbox,
)
from ..loops import run_in_loop
from ..output import print_json, print_table, timestamp
from ..running.terminal import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...sessions.once import Decision

LETTERS = 50
"""Dead letters that are shown, by default."""
SHOWN = 8
"""Characters of an id in a table; more where ids begin alike."""


class ProjectBundle(NamedTuple):
    """The background sessions of a folder (None: of all folders), or of one bundle."""

    project: str | None
    bundle: str | None = None


@click.command(epilog="Example: amplifier trigger dead --all")
@bundle_option
@click.option("--all", "everywhere", is_flag=True, help="Include all folders.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10**9), help=f"Show at most so many. [default: {LETTERS}; all with --json]"
)
@json_option
@click.pass_context
@run_in_loop
async def dead(ctx: click.Context, bundle_path: str | None, everywhere: bool, limit: int | None, as_json: bool) -> None:
    """List dead letters, the newest first: of this folder, or of the background sessions of BUNDLE."""
    from ...sessions.lineage import describe_event

    limit = limit or (ALL if as_json else LETTERS)
    place = ProjectBundle(None) if everywhere else await _place_of(ctx, bundle_path)
    async with use_inbox(storage_plugins(ctx)) as store:
        found = await read_dead_letters(store, *place, min(limit + 1, ALL))
    letters = found[:limit]
    if len(found) > limit:
        click.echo(f"The newest {limit:,} are shown, and there are more: -n {10 * limit}", err=True)
    if as_json:
        print_json("trigger.dead/2", [delivery_facts(each) for each in letters])
        return
    length = shortest_length([each.delivery_id for each in letters])
    print_table(
        ("ID", "WHEN", "BACKGROUND SESSION", "EVENT", "ATTEMPTS", "REASON"),
        (
            (
                each.delivery_id[:length],
                timestamp(each.updated),
                each.queue,
                describe_event(each.event),
                str(each.attempts),
                (each.reason or "").partition("\n")[0],
            )
            for each in letters
        ),
        empty="No dead letters."
        if everywhere
        else "No dead letters in this folder. All folders: amplifier trigger dead --all",
        shrink=("REASON", "EVENT"),
        leave_out=("ATTEMPTS", "EVENT", "WHEN", "BACKGROUND SESSION", "REASON"),
    )
    if letters and not ctx.obj["quiet"]:
        click.echo("Try them again when the cause is gone: amplifier trigger retry ID, or --all", err=True)


@click.command(epilog="Example: amplifier trigger retry --all")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Retry every dead letter of this folder.")
@click.option("--assume-done", "decision", flag_value="done", help="An interrupted call with effects once is done.")
@click.option("--run-again", "decision", flag_value="again", help="Run an interrupted call with effects once again.")
@bundle_option
@click.pass_context
@run_in_loop
async def retry(
    ctx: click.Context, ids: tuple[str, ...], every: bool, decision: Decision | None, bundle_path: str | None
) -> None:
    """Try dead, refused or skipped events again, as if for the first time, and postponed ones before their time.

    ID is an id shown by `amplifier trigger dead --all`, or enough of its beginning: at least four characters. An event
    whose session was interrupted in a tool with effects once needs a decision: --assume-done or --run-again. The exit
    code is 6 if one cannot be tried again, as one that is at work.
    """
    from ...background.giving_back import due_of, plain_reason, waits_with_queue

    if bool(ids) == every:
        raise click.UsageError("give ids shown by amplifier trigger dead, or --all")
    if every and decision is not None:
        raise click.UsageError(f"--{'assume-done' if decision == 'done' else 'run-again'} is for single ids, not --all")
    place = await _place_of(ctx, bundle_path) if not ids else ProjectBundle(None)
    async with use_inbox(storage_plugins(ctx)) as store:
        chosen = await find_deliveries(store, ids) if ids else (await read_dead_letters(store, *place))[::-1]
        if ids and decision is None and (waiting := await find_uncertain(store, chosen)):
            raise click.UsageError(f"nothing is retried: {next(iter(waiting.values()))}")
        try:
            due, uncertain, conflicts = await retry_deliveries(store, person(), chosen, decision)
        except NothingToDecide as error:
            raise click.UsageError(str(error)) from None
        queues = dict.fromkeys((each.project, each.queue) for each in due)
        runs = {
            (project, queue): wake(project, queue) or await status_elsewhere(store, project, queue)
            for project, queue in queues
        }
    for problem in (*uncertain.values(), *conflicts):
        tell(f"not retried: {problem}")
    for each in due:
        if runs[each.project, each.queue] and waits_with_queue(each):
            until = "" if (moment := due_of(each)) is None else f" until {timestamp(moment)}"
            click.echo(f"{summarize(each)} waits with its queue{until}: {plain_reason(each)}")
            continue
        when = "is handled now" if runs[each.project, each.queue] else "waits for the next: amplifier up"
        session = f", in its session {each.session_id}" if each.session_id else ""
        click.echo(f"{summarize(each)} {when}{session}")
    if conflicts:
        ctx.exit(exits.CONFLICT)
    if not due and not uncertain:
        click.echo("No dead letters in this folder.", err=True)


@click.command(epilog="Example: amplifier trigger drop 3f9a")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--folder", metavar="FOLDER", help="Folder of BUNDLE/NAME, also one that is gone.  [default: this one]")
@click.option("--reason", default="dropped by hand", show_default=True, help="Reason, shown by amplifier why.")
@click.pass_context
@run_in_loop
async def drop(ctx: click.Context, ids: tuple[str, ...], folder: str | None, reason: str) -> None:
    """Discard dead or waiting events.

    BUNDLE/NAME in place of an ID stands for all events of the folder that wait for that background session. The exit
    code is 6 if one cannot be discarded, as one that is at work.
    """
    from ...paths import project_of

    is_conflict = False
    async with use_inbox(storage_plugins(ctx)) as store:
        chosen = await find_deliveries(store, [each for each in ids if "/" not in each])
        for queue in [each for each in ids if "/" in each]:
            project = project_here() if folder is None else project_of(folder)
            waiting = await store.deliveries(project=project, queue=queue, state="pending", limit=ALL)
            if not waiting:
                click.echo(f"Nothing waits for {queue} in {project}. Name another folder with --folder", err=True)
                ctx.exit(exits.NOT_FOUND)
            chosen += waiting[::-1]
        async for each in drop_deliveries(store, person(), chosen, reason):
            if isinstance(each, DeliveryConflict):
                is_conflict = True
                tell(f"not dropped: {each}")
            else:
                click.echo(f"{summarize(each)} is skipped: {reason}")
    if is_conflict:
        ctx.exit(exits.CONFLICT)


async def _place_of(ctx: click.Context, bundle_path: str | None) -> ProjectBundle:
    from ...paths import project_of

    if bundle_path is None:
        return ProjectBundle(project_here())
    bundle = await load_bundle_at(bundle_path, plugins_of(ctx), runs=False)
    return ProjectBundle(project_of(bundle.base_path), bundle.name)


def shortest_length(ids: Sequence[str]) -> int:
    """Return the number of characters that make the ids distinct, at least `SHOWN`."""
    return next((length for length in range(SHOWN, 64) if len({each[:length] for each in ids}) == len(ids)), 64)
