"""`amplifier session delete` and `prune`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import SessionConflict

from ..app import (
    confirmed,
    deliveries_in,
    json_option,
    opened_store,
    plugins_of,
    run_async,
    session_by_prefix,
    yes_option,
)
from ..output import plural, print_json, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from amplifier_core.storage import SessionRecord, SessionStore


@click.command()
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True)
@yes_option
@click.option("--force", is_flag=True, help="Also one that is said to run: its process is gone.")
@json_option
@click.pass_context
def delete(ctx: click.Context, session_ids: tuple[str, ...], yes: bool, force: bool, as_json: bool) -> None:
    """Forget sessions; their forks keep the messages they share."""
    deleted = run_async(_delete(ctx, session_ids, yes=yes, force=force))
    if as_json:
        print_json("session.delete/1", [{"session_id": each, "forks": forks} for each, forks in deleted.items()])
        return
    for session_id in deleted:
        click.echo(f"deleted {session_id}")


async def _delete(ctx: click.Context, prefixes: Sequence[str], *, yes: bool, force: bool) -> dict[str, list[str]]:
    async with opened_store(plugins_of(ctx)) as store:
        records = {record.session_id: record for record in [await session_by_prefix(store, each) for each in prefixes]}
        if not force:
            _refuse_running(records.values())
        forks = _forks_of(records, await store.sessions())
        for session_id, record in records.items():
            click.echo(_what(record, forks[session_id]), err=True)
        if not confirmed(f"Delete {plural(len(records), 'session')}?", yes=yes):
            return {}
        for session_id in records:
            await store.delete(session_id)
        return forks


def _refuse_running(records: Iterable[SessionRecord]) -> None:
    from ...presence import as_it_is

    for record in records:
        if as_it_is(record).status == "running":
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' runs. Stop it first; if its process is gone, delete it with --force",
            )


def _forks_of(session_ids: Iterable[str], records: Sequence[SessionRecord]) -> dict[str, list[str]]:
    """Return for each session the forks of it that stay."""
    forks: dict[str, list[str]] = {session_id: [] for session_id in session_ids}
    for record in records:
        if record.fork_of in forks and record.session_id not in forks:
            forks[record.fork_of].append(record.session_id)
    return forks


def _what(record: SessionRecord, forks: Sequence[str]) -> str:
    what = f"{record.session_id}: {plural(record.message_count, 'message')}"
    if not forks:
        return f"{what}, no fork shares them"
    keeps = "keeps" if len(forks) == 1 else "keep"
    return f"{what}; {plural(len(forks), 'fork')} {keeps} what {'it shares' if len(forks) == 1 else 'they share'}"


@click.command()
@click.option("--older-than", metavar="AGE", help="Not changed for so long: 90m, 36h, 30d, 8w.")
@click.option("--keep", type=click.IntRange(min=0), default=0, help="Keep so many of the last changed, however old.")
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every project, not of this folder alone.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted.")
@yes_option
@json_option
@click.pass_context
def prune(
    ctx: click.Context,
    older_than: str | None,
    keep: int,
    everywhere: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget old sessions. Those that run, and those an event still waits for, are kept.

    With --older-than and --all, also the events of that age, and the deliveries that were over by then.
    """
    if older_than is None and not keep:
        raise click.UsageError("say which: --older-than 30d, or --keep 20, or both")
    age = _age(older_than)
    chosen, deleted = run_async(_prune(ctx, age, keep, everywhere=everywhere, dry_run=dry_run, yes=yes))
    if as_json:
        ids = [record.session_id for record in chosen]
        print_json("session.prune/1", {"deleted": deleted, "sessions": ids})
        return
    for record in chosen:
        click.echo(f"{'deleted' if deleted else 'would delete'} {record.session_id}, {timestamp(record.updated)}")
    if not chosen:
        click.echo("No session is that old.", err=True)


def _age(text: str | None) -> timedelta | None:
    from ...retention import age

    try:
        return age(text) if text is not None else None
    except ValueError as error:
        raise click.UsageError(f"--older-than: {error}") from error


async def _prune(
    ctx: click.Context, older_than: timedelta | None, keep: int, *, everywhere: bool, dry_run: bool, yes: bool
) -> tuple[list[SessionRecord], bool]:
    from amplifier_core.storage import Inbox

    from ...paths import project_of
    from ...retention import disposable

    async with opened_store(plugins_of(ctx)) as store:
        records = await store.sessions(project=None if everywhere else project_of())
        before = datetime.now(UTC) - older_than if older_than is not None else None
        chosen = disposable(records, before=before, keep=keep, needed=await _needed(store))
        if dry_run or not (chosen and confirmed(f"Delete {plural(len(chosen), 'session')}?", yes=yes)):
            return chosen, False
        if everywhere and before is not None and isinstance(store, Inbox):
            await store.trim(before=before)
        for record in chosen:
            await store.delete(record.session_id)
        return chosen, True


async def _needed(store: SessionStore) -> set[str]:
    """Return the sessions that deliveries will go on with."""
    waiting = [each for state in ("pending", "claimed") for each in await deliveries_in(store, state=state)]
    return {delivery.session_id for delivery in waiting if delivery.session_id}
