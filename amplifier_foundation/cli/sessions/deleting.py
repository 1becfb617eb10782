"""Run `amplifier session delete` and `prune`."""

from __future__ import annotations

from dataclasses import asdict

import click

from ...operations.sessions import delete_sessions, find_forks, read_deliveries
from ..app import (
    confirm,
    find_session,
    json_option,
    person,
    projects_here,
    storage_plugins,
    use_store,
    yes_option,
)
from ..completing import complete_sessions
from ..loops import run_in_loop
from ..output import plural, print_json, timestamp

SHOWN = 50
"""Pruned sessions that are named, the oldest."""


@click.command(epilog="Example: amplifier session delete last")
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_sessions)
@yes_option
@click.option(
    "--force",
    is_flag=True,
    help="Also delete one that is recorded as running (its process is gone), or that waits for an approval.",
)
@json_option
@click.pass_context
@run_in_loop
async def delete(ctx: click.Context, session_ids: tuple[str, ...], yes: bool, force: bool, as_json: bool) -> None:
    """Delete sessions; their forks keep the shared messages.

    Their answers and errors in the log of events go at once, and so does the data of their first events. A background
    session still wakes on an event in the log, without these texts. While another process reads or writes the
    store, SQLite's log beside it (amplifier.db-wal) may keep what is deleted, until a later deletion or until all such
    processes end.

    Events by the tool `emit`, issues, notes, logs/up.log, and acts of people, with names of sessions, stay. Dead
    letters stay until `trigger drop`, and 30 days more. `session prune --older-than 1h --all` deletes old events and
    finished deliveries earlier.

    Backups keep all of it until newer ones replace them, and stores replaced by a restore, until you delete them.
    """
    from ...operations.approvals import find_question
    from ...sessions.held import held_of
    from ...sessions.presence import refuse_deletion

    async with use_store(storage_plugins(ctx)) as store:
        records = {each.session_id: each for each in [await find_session(store, prefix) for prefix in session_ids]}
        for record in records.values():
            asked = await find_question(store, record.session_id) if held_of(record.metadata) and not force else None
            refuse_deletion(record, force=force, delivery_id=asked.delivery_id if asked is not None else "ID")
        forks = await find_forks(store, records)
        for session_id, record in records.items():
            kept = f"{plural(len(forks[session_id]), 'fork')} will keep the shared ones"
            kept = kept if forks[session_id] else "no fork shares them"
            click.echo(f"{session_id}: {plural(record.message_count, 'message')}; {kept}", err=True)
        deleted = list(records) if confirm(f"Delete {plural(len(records), 'session')}?", yes=yes) else []
        await delete_sessions(store, person(), [records[session_id] for session_id in deleted])
    if as_json:
        print_json("session.delete/1", [{"session_id": each, "forks": forks[each]} for each in deleted])
        return
    for session_id in deleted:
        click.echo(f"deleted {session_id}")


@click.command(epilog="Example: amplifier session prune --older-than 30d --keep 20")
@click.option("--older-than", metavar="AGE", help="Delete sessions unchanged for so long: 36h, 30d, 8w.")
@click.option("--keep", type=click.IntRange(min=0), default=0, help="Keep the last changed ones, however old.")
@click.option("--all", "everywhere", is_flag=True, help="Include the sessions of all folders.")
@click.option("--dry-run", is_flag=True, help="List the sessions, count the rest, and delete nothing.")
@yes_option
@json_option
@click.pass_context
@run_in_loop
async def prune(
    ctx: click.Context,
    older_than: str | None,
    keep: int,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete old sessions, except running ones and those needed by a waiting event.

    With --older-than and --all, also events of that age, and deliveries finished by then, of any session. Backups
    keep all, as with `session delete`.
    """
    from amplifier_core.storage import DurableStore, Purged

    from ...background.retention import age, count_purged, find_disposable
    from ...background.store_clock import clock_of

    if older_than is None and not keep:
        raise click.UsageError("give --older-than 30d, or --keep 20, or both")
    try:
        oldest = age(older_than) if older_than is not None else None
    except ValueError as error:
        raise click.UsageError(f"--older-than: {error}") from error
    async with use_store(storage_plugins(ctx)) as store:
        before = (await clock_of(store)).now() - oldest if oldest is not None else None
        waiting = [each for state in ("pending", "claimed") for each in await read_deliveries(store, state=state)]
        needed = {delivery.session_id for delivery in waiting if delivery.session_id}
        projects = None if everywhere else projects_here()
        chosen = await find_disposable(store, projects, before=before, keep=keep, needed=needed)
        purged = store if everywhere and before is not None and isinstance(store, DurableStore) else None
        is_asked = dry_run or not yes  # else the purge itself counts
        old = await count_purged(purged, before) if purged and before and is_asked else Purged()
        counts = {"session": len(chosen), "finished delivery": old.deliveries, "event": old.events}
        asked = f"Delete {', '.join(plural(count, noun) for noun, count in counts.items() if count)}?"
        delete_them = not dry_run and (yes or (any(counts.values()) and confirm(asked, yes=False)))
        if delete_them and purged and before:
            old = await purged.purge(before=before)
        await delete_sessions(store, person(), chosen if delete_them else [])
    if as_json:
        ids = [record.session_id for record in chosen]
        has_deleted = delete_them and (bool(chosen) or old != Purged())
        print_json("session.prune/1", {"deleted": has_deleted, "sessions": ids, **asdict(old)})
        return
    done = "deleted" if delete_them else "would delete"
    for record in chosen[:SHOWN]:
        click.echo(f"{done} {record.session_id}, {timestamp(record.updated)}")
    if len(chosen) > SHOWN:
        see = "" if delete_them else "; --json prints the ids of all"
        click.echo(f"… and {len(chosen) - SHOWN:,} more{see}")
    if old != Purged():
        click.echo(f"{done} {plural(old.deliveries, 'finished delivery')} and {plural(old.events, 'event')}")
    elif not chosen:
        click.echo(f"No session{', delivery or event' if purged else ''} is that old.", err=True)
