"""`amplifier session list` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..app import json_option, opened_store, plugins_of, run_async, session_by_prefix
from ..output import console, print_json, print_table, timestamp
from .facts import facts, print_message, with_ids

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message


@click.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every project, not of this folder alone.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="How many at most.")
@json_option
@click.pass_context
def list_(ctx: click.Context, everywhere: bool, limit: int, as_json: bool) -> None:
    """List sessions, the last changed first."""
    records = run_async(_records(ctx, everywhere=everywhere, limit=limit))
    if as_json:
        print_json("session.list/1", [facts(record) for record in records])
        return
    print_table(
        ("SESSION", "STATUS", "TURNS", "MESSAGES", "UPDATED", "NAME"),
        (_row(each) for each in records),
        empty="No sessions"
        + (" yet." if everywhere else " in this folder. Other folders': amplifier session list --all"),
    )


def _row(record: SessionRecord) -> tuple[str, ...]:
    counts = str(record.turn_count), str(record.message_count)
    return record.session_id, record.status, *counts, timestamp(record.updated), record.name


async def _records(ctx: click.Context, *, everywhere: bool, limit: int | None) -> list[SessionRecord]:
    import gc

    from ...paths import project_of
    from ...presence import as_it_is

    gc.disable()  # of 10,000 records none is garbage, and to find that out takes as long as to read them
    try:
        async with opened_store(plugins_of(ctx)) as store:
            records = await store.sessions(project=None if everywhere else project_of(), limit=limit)
            return [as_it_is(record) for record in records]
    finally:
        gc.enable()


@click.command()
@click.argument("session_id", metavar="ID")
@json_option
@click.pass_context
def show(ctx: click.Context, session_id: str, as_json: bool) -> None:
    """Show one session: what is known of it, and what was said; fork it at a message with ID@m12."""
    record, messages = run_async(stored_session(ctx, session_id))
    if as_json:
        print_json("session.show/1", {**facts(record), "messages": with_ids(messages)})
        return
    out = console()
    for label, value in _about(record):
        if value:
            out.print(f"[bold]{label:9}[/] ", end="")
            out.print(value, markup=False)
    for number, message in enumerate(messages, 1):
        print_message(number, message)


async def stored_session(ctx: click.Context, prefix: str) -> tuple[SessionRecord, list[Message]]:
    """Return a session, by the beginning of its id, with its messages."""
    from ...presence import as_it_is

    async with opened_store(plugins_of(ctx)) as store:
        record = await session_by_prefix(store, prefix)
        return as_it_is(record), await store.read(record.session_id)


def _about(record: SessionRecord) -> list[tuple[str, str]]:
    fork = f"{record.fork_of} at message {record.fork_at}" if record.fork_of else ""
    return [
        ("session", record.session_id),
        ("name", record.name),
        ("status", record.status),
        ("error", record.error or ""),
        ("parent", record.parent_id or ""),
        ("fork of", fork),
        ("bundle", f"{record.bundle} ({record.bundle_source})" if record.bundle_source else record.bundle),
        ("folder", record.project),
        ("created", timestamp(record.created)),
        ("updated", timestamp(record.updated)),
    ]
