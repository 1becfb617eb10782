"""Run `amplifier session list`, `show` and `diff`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.secrets import redact_text

from ...documents.safe_text import plain
from ...operations.sessions import session_facts, with_ids
from ...sessions.records import describe_worktree
from ..ages import read_age
from ..app import find_session, json_option, projects_here, read_sessions, storage_plugins, use_store
from ..completing import complete_sessions
from ..loops import enter_loop, run_reading
from ..output import console, plural, print_json, print_table, timestamp
from .messages import print_messages

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message


SHOWN = 50
"""Messages of a session at a terminal, by default."""
STATUSES = ("running", "waiting", "completed", "failed", "interrupted", "cancelled", "idle")


@click.command("list", epilog="Example: amplifier session list --search parser --status failed --since 7d")
@click.option("--all", "everywhere", is_flag=True, help="Include the sessions of all folders.")
@click.option("-s", "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only these; repeatable.")
@click.option("--name", metavar="TEXT", default="", help="Only with this in the name or the id.")
@click.option("--search", metavar="TEXT", default="", help="Only with this in a message, the name or the id.")
@click.option("--since", metavar="AGE", callback=read_age, help="Those changed since: 1h30m, 7d, or a date (UTC).")
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 10**9), help="Show at most so many."
)
@json_option
@click.pass_context
@run_reading
async def list_(
    ctx: click.Context,
    everywhere: bool,
    statuses: tuple[str, ...],
    name: str,
    search: str,
    since: timedelta | None,
    limit: int,
    as_json: bool,
) -> None:
    """List sessions, the last changed first. TEXT matches in capitals or not."""
    import gc

    from ...background.store_clock import clock_of
    from ...sessions.presence import as_it_is, status_of

    is_filtered = bool(statuses or name or search) or since is not None
    gc.disable()  # of 10,000 records none is garbage, and the search for garbage takes as long as reading them
    try:
        async with use_store(storage_plugins(ctx)) as store:
            if is_filtered:
                begin = (await clock_of(store)).now() - since if since is not None else None
                found = await _find(store, everywhere, statuses, name, begin, limit + 1, search)
            else:
                found = [as_it_is(each) for each in await read_sessions(store, everywhere=everywhere, limit=limit + 1)]
    finally:
        gc.enable()
    records = found[:limit]
    if len(found) > limit:
        click.echo(f"The last changed {limit:,} are shown, and there are more: -n {10 * limit}", err=True)
    if as_json:
        print_json("session.list/1", [session_facts(record) for record in records])
        return
    where = "" if everywhere else " in this folder. All folders: amplifier session list --all"
    print_table(
        ("SESSION", "STATUS", "TURNS", "MESSAGES", "UPDATED", "NAME"),
        (
            (
                each.session_id,
                status_of(each),
                str(each.turn_count),
                str(each.message_count),
                timestamp(each.updated),
                each.name,
            )
            for each in records
        ),
        empty=f"No such session{where}" if is_filtered else f"No sessions{where or ' yet.'}",
        shrink=("NAME",),
        leave_out=("MESSAGES", "TURNS", "UPDATED", "NAME", "STATUS"),
    )


async def _find(
    store: SessionStore,
    everywhere: bool,
    statuses: Collection[Any],
    name: str,
    begin: datetime | None,
    limit: int,
    text: str,
) -> list[SessionRecord]:
    """Return the sessions that are wanted; a line on stderr says when not all were read for a text."""
    from ...operations.session_search import SEARCHED, Wanted, find_sessions, search_sessions

    wanted = Wanted(None if everywhere else projects_here(), statuses, name, begin)
    if not text:
        return await find_sessions(store, wanted, limit)
    await enter_loop()
    found = await search_sessions(store, wanted, limit, text)
    if found.unread:
        click.echo(
            f"searched the last changed {found.read:,} of {found.read + found.unread:,} sessions, which is "
            f"{SEARCHED:,} messages, and the words of the others; narrow them with --status, --name or --since",
            err=True,
        )
    return found.records


@click.command(epilog="Example: amplifier session show last")
@click.argument("session_id", metavar="ID", shell_complete=complete_sessions)
@click.option("--trace", "is_trace", is_flag=True, help="Show where its time and money went, instead of its messages.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Show its running turn too, as it comes, to its end.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10**9),
    help=f"Show the last so many messages. [default: {SHOWN} at a terminal, else all]",
)
@click.option("--jsonl", "as_lines", is_flag=True, help="With --follow: print each message and step as a line of JSON.")
@json_option
@click.pass_context
@run_reading
async def show(
    ctx: click.Context,
    session_id: str,
    is_trace: bool,
    follows: bool,
    limit: int | None,
    as_lines: bool,
    as_json: bool,
) -> None:
    """Show a session and its messages; fork it at one of them with ID@m12."""
    if is_trace and limit is not None:
        raise click.UsageError("--trace excludes -n: it is of all messages")
    if limit is None and sys.stdout.isatty() and not as_json and not as_lines:
        limit = SHOWN
    if (follows and (is_trace or as_json)) or (as_lines and not follows):
        raise click.UsageError("--follow excludes --trace and --json, and --jsonl belongs to --follow")
    if follows:
        from .watching import show_following

        return await show_following(ctx, session_id, limit, as_lines=as_lines)
    if is_trace:
        from .tracing import show_trace

        return await show_trace(ctx, session_id, as_json=as_json)
    record, messages, start = await read_session(ctx, session_id, limit)
    if as_json:
        print_json("session.show/1", {**session_facts(record), "messages": with_ids(messages, start)})
        return
    print_session(record, messages, start)


def print_session(record: SessionRecord, messages: Sequence[Message], start: int = 0) -> None:
    """Print a session with its last messages for a person; the first of these has position `start`."""
    from ...sessions.presence import status_of

    out = console()
    fork = f"{record.fork_of} at message {record.fork_at}" if record.fork_of else ""
    for label, value in (
        ("session", record.session_id),
        ("name", record.name),
        ("status", status_of(record)),
        ("error", redact_text(record.error or "")),
        ("parent", record.parent_id or ""),
        ("fork of", fork),
        ("bundle", f"{record.bundle} ({record.bundle_source})" if record.bundle_source else record.bundle),
        ("folder", record.project),
        ("worktree", plain(describe_worktree(record.metadata))),
        ("created", timestamp(record.created)),
        ("updated", timestamp(record.updated)),
    ):
        if value:
            out.print(f"[bold]{label:9}[/] ", end="")
            out.print(value, markup=False)
    print_messages(messages, start)
    if start:
        total = start + len(messages)
        all_of_it = f"amplifier session show {record.session_id} -n {total}"
        click.echo(f"The last {len(messages):,} of {total:,} messages are shown. See all: {all_of_it}", err=True)


async def read_session(
    ctx: click.Context, prefix: str, limit: int | None = None
) -> tuple[SessionRecord, list[Message], int]:
    """Return the session whose id begins with `prefix`, its last `limit` messages, and the position of the first."""
    from ...sessions.presence import as_it_is
    from ...sessions.uncounted import count_all

    async with use_store(storage_plugins(ctx)) as store:
        (record,) = await count_all(store, [await find_session(store, prefix)])
        messages, start = await read_last(store, record, limit)
        return as_it_is(record), messages, start


async def read_last(store: SessionStore, record: SessionRecord, limit: int | None) -> tuple[list[Message], int]:
    """Return the last `limit` messages of a session (None: all), and the position of the first of them."""
    start = max(0, record.message_count - limit) if limit is not None else 0
    messages = await store.read(record.session_id, start)
    cut = max(0, len(messages) - limit) if limit is not None else 0  # it may have grown meanwhile
    return messages[cut:], start + cut


@click.command(epilog="Example: amplifier session diff 3f9a 77de")
@click.argument("first", metavar="A", shell_complete=complete_sessions)
@click.argument("second", metavar="B", shell_complete=complete_sessions)
@json_option
@click.pass_context
@run_reading
async def diff(ctx: click.Context, first: str, second: str, as_json: bool) -> None:
    """Show where the histories of A and B part, and the messages of each after that."""
    from ...sessions.lineage import parting

    async with use_store(storage_plugins(ctx)) as store:
        ids = [(await find_session(store, prefix)).session_id for prefix in (first, second)]
        parted = parting(await store.read(ids[0]), await store.read(ids[1]))
    shared, sides = parted.shared, list(zip(ids, parted.own, strict=True))
    if as_json:
        listed = [{"session_id": session_id, "messages": with_ids(own, shared)} for session_id, own in sides]
        print_json("session.diff/1", {"shared": shared, "sessions": listed})
        return
    said = f"The first {plural(shared, 'message')} are shared" if shared else "They share no messages"
    click.echo(said.replace("message are", "message is"))
    out = console()
    for session_id, own in sides:
        out.print()
        out.print(f"── {session_id}: {plural(len(own), 'message')} of its own", style="bold", markup=False)
        print_messages(own, shared)
