"""`amplifier session`: list, read and fork what is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .app import json_option, opened_store, plugins_of, run_async, session_by_prefix, split_point
from .output import console, print_json, print_table, session_tree, timestamp

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

    from ..lineage import Node


@click.group()
def session() -> None:
    """List, read and fork sessions."""


@session.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every project, not of this folder alone.")
@click.option("-n", "--limit", default=50, show_default=True, help="How many at most.")
@json_option
@click.pass_context
def list_(ctx: click.Context, everywhere: bool, limit: int, as_json: bool) -> None:
    """List sessions, the last changed first."""
    records = run_async(_records(ctx, everywhere=everywhere, limit=limit))
    if as_json:
        print_json("session.list/1", [_facts(record) for record in records])
        return
    print_table(
        ("SESSION", "STATUS", "TURNS", "MESSAGES", "UPDATED"),
        (
            (each.session_id, each.status, str(each.turn_count), str(each.message_count), timestamp(each.updated))
            for each in records
        ),
        empty="No sessions"
        + (" yet." if everywhere else " in this folder. Other folders': amplifier session list --all"),
    )


async def _records(ctx: click.Context, *, everywhere: bool, limit: int | None) -> list[SessionRecord]:
    from ..paths import project_of

    async with opened_store(plugins_of(ctx)) as store:
        return await store.sessions(project=None if everywhere else project_of(), limit=limit)


def _facts(record: SessionRecord) -> dict[str, Any]:
    return {key: value for key, value in asdict(record).items() if key not in ("config", "metadata")}


@session.command()
@click.argument("session_id", metavar="ID")
@json_option
@click.pass_context
def show(ctx: click.Context, session_id: str, as_json: bool) -> None:
    """Show one session: what is known of it, and what was said."""
    record, messages = run_async(_session(ctx, session_id))
    if as_json:
        print_json("session.show/1", {**_facts(record), "messages": messages})
        return
    out = console()
    for label, value in _about(record):
        if value:
            out.print(f"[bold]{label:9}[/] ", end="")
            out.print(value, markup=False)
    for message in messages:
        _print_message(message)


async def _session(ctx: click.Context, prefix: str) -> tuple[SessionRecord, list[Message]]:
    async with opened_store(plugins_of(ctx)) as store:
        record = await session_by_prefix(store, prefix)
        return record, await store.read(record.session_id)


def _about(record: SessionRecord) -> list[tuple[str, str]]:
    fork = f"{record.fork_of} at message {record.fork_at}" if record.fork_of else ""
    return [
        ("session", record.session_id),
        ("status", record.status),
        ("error", record.error or ""),
        ("parent", record.parent_id or ""),
        ("fork of", fork),
        ("bundle", f"{record.bundle} ({record.bundle_source})" if record.bundle_source else record.bundle),
        ("folder", record.project),
        ("created", timestamp(record.created)),
        ("updated", timestamp(record.updated)),
    ]


def _print_message(message: Message) -> None:
    import json

    from ..runners import text_of

    out = console()
    role = str(message.get("role"))
    title = f"{role} {message['name']}" if role == "tool" and message.get("name") else role
    out.print(f"\n[bold cyan]{title}[/]")
    text = text_of(message)
    if text:
        out.print(text, markup=False)
    for call in message.get("tool_calls") or ():
        arguments = json.dumps(call.get("arguments"), ensure_ascii=False)
        out.print(f"→ {call.get('tool')} {arguments}", markup=False, style="dim")


@session.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of every project, not of this folder alone.")
@json_option
@click.pass_context
def tree(ctx: click.Context, session_id: str | None, everywhere: bool, as_json: bool) -> None:
    """Draw who made whom, whose history is whose, and what woke what."""
    nodes, title = run_async(_trees(ctx, session_id, everywhere=everywhere))
    if as_json:
        print_json("session.tree/1", [_branch(node) for node in nodes])
    elif nodes:
        console().print(session_tree(nodes, title))
    else:
        click.echo("No sessions in this folder. Other folders': amplifier session tree --all", err=True)


async def _trees(ctx: click.Context, prefix: str | None, *, everywhere: bool) -> tuple[list[Node], str]:
    from ..lineage import forest, subtree
    from ..paths import project_of

    async with opened_store(plugins_of(ctx)) as store:
        chosen = await session_by_prefix(store, prefix) if prefix else None
        project = chosen.project if chosen else None if everywhere else project_of()
        records = await store.sessions(project=project)
        roots = forest(records, await store.deliveries(project=project, limit=100_000))
    if chosen is None:
        return roots, project or "every project"
    node = subtree(roots, chosen.session_id)
    return ([node] if node else []), chosen.project


def _branch(node: Node) -> dict[str, Any]:
    from ..lineage import describe_event

    woken = node.woken_by
    return {
        **_facts(node.record),
        "woken_by": {"event_id": woken.event.event_id, "summary": describe_event(woken.event)} if woken else None,
        "children": [_branch(child) for child in node.children],
    }


@session.command()
@click.argument("point", metavar="ID[@TURN]")
@click.option("--name", default="", help="Begin the new session's id with this.")
@json_option
@click.pass_context
def fork(ctx: click.Context, point: str, name: str, as_json: bool) -> None:
    """Fork a session, now or at the end of a turn; nothing is copied, and the source is not touched."""
    record = run_async(_fork(ctx, point, name))
    if as_json:
        print_json("session.fork/1", _facts(record))
        return
    click.echo(record.session_id)
    click.echo(
        f"shares {record.fork_at} messages of {record.fork_of}. Ask it something: "
        f'amplifier run --resume {record.session_id} "…"',
        err=True,
    )


async def _fork(ctx: click.Context, point: str, name: str) -> SessionRecord:
    from ..forks import fork_stored

    prefix, turn = split_point(point)
    plugins = plugins_of(ctx)
    async with opened_store(plugins) as store:
        source = await session_by_prefix(store, prefix)
        return await fork_stored(store, source, turn=turn, name=name, plugins=plugins)
