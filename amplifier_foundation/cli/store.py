"""Run `amplifier store`: show its room, check, back up, restore, salvage, compact and copy it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import BackupNotFound
from amplifier_core.store_administration import compactions

from .app import confirm, json_option, plugins_of, read_settings_here, yes_option
from .exits import FAILED
from .output import plural, print_json, print_table
from .store_copy import copy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.storage import StoreAdministration, StoreUse
    from amplifier_core.store_administration import RestoreLosses

KEPT = 7
"""Backups made by hand that are kept in the store's folder of backups."""
BY_HAND = "by-hand"
"""Their label: they are counted on their own, and push out none of a day."""

_path = click.Path(dir_okay=False, path_type=Path, resolve_path=True)


@click.group()
def store() -> None:
    """Look at the store: its size, checks, backups, repairs and copies."""


store.add_command(copy)


@store.command(
    short_help="Show the room of each kind of data, and the backups.", epilog="Example: amplifier store info"
)
@json_option
@click.pass_context
def info(ctx: click.Context, as_json: bool) -> None:
    """Show the room that the store takes, by kind of data, and its backups."""
    found = _administration(ctx).info()
    if as_json:
        copies = {"backups": [*map(str, found.backups)], "replaced": [*map(str, found.replaced)]}
        print_json("store.info/1", {**asdict(found), **copies})
        return
    print_table(("KIND", "ROWS", "SIZE"), _use_rows(found.uses), empty="The store is empty.", leave_out=("ROWS",))
    if found.largest:
        click.echo()
        print_table(("LARGEST", "ROWS", "SIZE"), _use_rows(found.largest), empty="", leave_out=("ROWS",))
    click.echo(f"\n{found.place}: {_size(found.bytes)}, {_size(found.free)} of it free")
    if found.other_backups:
        click.echo(f"It {found.other_backups}")
        return
    newest = f", the newest {found.backups[0]}" if found.backups else ". Make one with: amplifier store backup"
    click.echo(f"{plural(len(found.backups), 'backup')}{newest}")
    for each in found.replaced:
        click.echo(f"kept by a restore until you delete it: {each}")


@store.command(short_help="Read everything and list faults.", epilog="Example: amplifier store check --repair")
@click.option("--repair", is_flag=True, help="Rebuild damaged indexes.")
@json_option
@click.pass_context
def check(ctx: click.Context, repair: bool, as_json: bool) -> None:
    """Read the whole store and list its faults; ends with 1 if there are any."""
    faults = _administration(ctx).check(repair=repair)
    if as_json:
        print_json("store.check/1", [asdict(each) for each in faults])
    else:
        rows = [[each.where, each.message, each.remedy] for each in faults]
        print_table(
            ("WHERE", "FAULT", "REMEDY"),
            rows,
            empty="The store has no faults.",
            wrap=("REMEDY", "FAULT"),
            leave_out=("REMEDY",),
        )
    if faults:
        ctx.exit(FAILED)


@store.command(short_help="Copy the store, in use or not.", epilog="Example: amplifier store backup")
@click.argument("path", type=_path, required=False)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=KEPT,
    show_default=True,
    help="Backups made by hand to keep in the folder of backups, without PATH.",
)
@json_option
@click.pass_context
def backup(ctx: click.Context, path: Path | None, keep: int, as_json: bool) -> None:
    """Copy the store, in use or not, to PATH, or into the folder of backups beside it."""
    from ..sessions.store_arguments import known_arguments

    administration = _administration(ctx)
    label = known_arguments(administration.backup, label=BY_HAND)
    made = administration.backup(path, keep=None if path else keep, **label)
    if as_json:
        print_json("store.backup/1", {"path": str(made), "bytes": made.stat().st_size})
    else:
        click.echo(str(made))


@store.command(short_help="Put a backup in place of the store.", epilog="Example: amplifier store restore")
@click.argument("path", metavar="[BACKUP]", type=_path, required=False)
@yes_option
@json_option
@click.pass_context
def restore(ctx: click.Context, path: Path | None, yes: bool, as_json: bool) -> None:
    """Put BACKUP, or the newest backup, in place of the store; the old store is kept beside it.

    Nothing may use the store meanwhile: stop background sessions first. What was handled since the backup is handled
    again where it waits in the backup, or where a file watcher or a timer finds it anew: it is counted before the
    question, and so are the sessions deleted since: they come back.
    """
    from ..sessions.lock import owner_lock

    administration = _administration(ctx)
    with owner_lock({"bundles": ["amplifier store restore"], "projects": [], "socket": ""}):
        source = path or next(iter(administration.backups()), None)
        losses: RestoreLosses | None = None
        if source is not None:
            if not source.exists():
                raise BackupNotFound(source, "is not a file. Name a backup; see: amplifier store info")
            if count := getattr(administration, "losses", None):  # a storage may offer it
                losses = count(source)
                _tell_losses(losses)
            if not confirm(f"Replace the store by {source}?", yes=yes):
                return
        kept = administration.restore(path)
        replaced = str(kept) if kept.exists() else None  # the old store may have been lost before
    if as_json:
        lost = asdict(losses) if losses is not None else None
        print_json("store.restore/1", {"backup": str(source), "replaced": replaced, "losses": lost})
    else:
        click.echo(f"restored {source}")
        if replaced:
            click.echo(f"The store before it is kept: {replaced}", err=True)
        if losses is not None and losses.handled:
            click.echo("Look before work is done again: amplifier pause NAME; amplifier up", err=True)


@store.command(
    short_help="Write the readable part of a damaged store to a file.", epilog="Example: amplifier store salvage"
)
@click.argument("path", type=_path, required=False)
@json_option
@click.pass_context
def salvage(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Write everything readable of a damaged store to PATH, or to a new file beside it, and list the losses.

    Ends with 1 if there are any.
    """
    found = _administration(ctx).salvage(path)
    if as_json:
        print_json("store.salvage/1", {**asdict(found), "path": str(found.path)})
    else:
        rows = [[kind.replace("_", " "), f"{count:,}"] for kind, count in found.rows.items()]
        print_table(
            ("KIND", "SALVAGED"), rows, empty="The store was empty." if not found.lost else "No row is readable."
        )
        for each in found.lost:
            click.echo(f"lost: {each}")
        if not found.lost:
            click.echo("Nothing is lost.")
        click.echo(f"{found.path}\nUse it with: amplifier store restore {found.path}", err=True)
    if found.lost:
        ctx.exit(FAILED)


@store.command(short_help="Give free room back to the file system.", epilog="Example: amplifier store compact")
@click.option("--full", is_flag=True, help="Rewrite the whole store; writers wait. Needs as much free space again.")
@json_option
@click.pass_context
def compact(ctx: click.Context, full: bool, as_json: bool) -> None:
    """Give free room in the store back to the file system."""
    administration = _administration(ctx)
    steps = [administration.compact(wait=True)] if full else list(compactions(administration))
    done = replace(steps[-1], before=steps[0].before)
    if as_json:
        print_json("store.compact/1", asdict(done))
        return
    click.echo(f"{_size(done.before)} before, {_size(done.after)} now")
    if done.free:
        click.echo(f"{_size(done.free)} inside are free. Give all back with: amplifier store compact --full", err=True)


def _administration(ctx: click.Context) -> StoreAdministration:
    from ..sessions.storages import open_administration

    return open_administration(plugins_of(ctx), read_settings_here().get("storage"))


def _tell_losses(losses: RestoreLosses | None) -> None:
    """Say what a restore would lose."""
    if losses is None:
        click.echo("What was handled since the backup, and what it lacks, is unknown.", err=True)
        return
    if losses.handled:
        handled = plural(losses.handled, "event")
        click.echo(
            f"Handled since the backup: {handled}. Those that wait in it, and those of file watchers and timers, are "
            f"handled again.",
            err=True,
        )
    lacking = ((losses.waiting, "waiting event"), (losses.sessions, "session"))
    if lacks := " and ".join(plural(count, noun) for count, noun in lacking if count):
        click.echo(f"The backup lacks {lacks}, in whole or in part.", err=True)
    if losses.returning:
        click.echo(f"Deleted since the backup, and coming back: {plural(losses.returning, 'session')}.", err=True)


def _use_rows(uses: Iterable[StoreUse]) -> list[list[str]]:
    return [[use.kind, f"{use.rows:,}", _size(use.bytes)] for use in uses]


def _size(count: int) -> str:
    """Return bytes as a person reads them: `512 B`, `4.2 MB`."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
