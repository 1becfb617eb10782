"""Run `amplifier ps`: list background sessions with their state and the counts of their queues."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import StoreError

from ..documents.safe_text import shell_word
from ..operations.columns import as_json as row_facts
from ..operations.columns import cell, columns_of, cut_causes, shorten_home
from ..operations.overview import ask_processes, overview_without_store, read_overview, read_undeclared
from ..sessions.lock import killed_owners
from . import exits
from .app import json_option, plugins_of, project_here, storage_plugins, use_inbox
from .loops import run_reading
from .output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from ..background.undeclared import UndeclaredQueue
    from ..operations.overview import Overview

LEFT_OUT = (
    *("LAST EVENT", "FOLDER", "DROPPED", "DONE", "HOSTS", "AT WORK", "TO APPROVE", "POSTPONED"),
    *("WAITING", "DEAD", "STATE"),
)
"""Columns that a narrow terminal does not get, the least important first."""
STARTING = timedelta(seconds=60)
"""A process that does not answer may still start."""


@click.command(epilog="Example: amplifier ps")
@json_option
@click.pass_context
@run_reading
async def ps(ctx: click.Context, as_json: bool) -> None:
    """List the running background sessions, and stopped ones with waiting or dead events.

    DONE counts events still in the store. DROPPED counts refused and skipped events: amplifier logs tells why. DEAD
    counts events that failed every attempt: amplifier trigger dead. POSTPONED counts waiting events that a plugin or a
    budget has put off, with the first time and reason. The exit code is 1 while one is degraded or failed,
    and when their process was killed, or has not answered for a minute. A store that cannot be read leaves the counts
    out.
    """
    processes, killed = ask_processes(), killed_owners()
    failure: StoreError | None = None
    undeclared: list[UndeclaredQueue] = []
    try:
        async with use_inbox(storage_plugins(ctx)) as store:
            overview = await read_overview(store, processes)
            if not as_json:  # which has no place for them
                undeclared = await read_undeclared(store, partial(plugins_of, ctx), overview)
    except StoreError as error:
        if not processes.running:
            raise
        failure = error
        overview = overview_without_store(processes, failure)
    _print(overview, killed, undeclared, to_json=as_json)
    if failure is not None:
        raise failure
    is_unwell = any(row["state"] in ("degraded", "failed") for row in overview.background_sessions)
    if killed or is_unwell or any(map(_is_silent, overview.processes)):
        ctx.exit(exits.FAILED)


def _is_silent(owner: dict[str, Any]) -> bool:
    """Return whether a process does not answer, though it has had the time to start."""
    since = str(owner.get("since") or "")
    return "problem" in owner and (not since or datetime.now(UTC) - datetime.fromisoformat(since) > STARTING)


def _print(
    overview: Overview, killed: list[dict[str, Any]], undeclared: list[UndeclaredQueue], *, to_json: bool
) -> None:
    owners, hosts, rows = overview.processes, overview.hosts, overview.background_sessions
    if to_json:
        rows_as_json = list(map(row_facts, rows))
        print_json("ps/3", {"processes": owners, "killed": killed, "hosts": hosts, "background_sessions": rows_as_json})
        return
    columns = columns_of("ps")
    if sys.stdout.isatty():
        columns = [column for column in columns if column.at_terminal(rows)]
    if rows:
        headings = [column.heading for column in columns]
        print_table(
            headings,
            ([cell(column, row, timestamp) for column in columns] for row in rows),
            empty="",
            shrink=("STATE", "POSTPONED", "FOLDER"),
            leave_out=LEFT_OUT,
        )
    for cause in cut_causes(rows):
        click.echo(cause, err=True)
    for row in rows:
        if row["state"] == "degraded" and row["postponed"]:
            elsewhere = f" --folder {shell_word(row['project'])}" if row["project"] != project_here() else ""
            discard = f"amplifier trigger drop {row['queue']}{elsewhere}"
            click.echo(f"{row['queue']}: discard all that waits for it with: {discard}", err=True)
    for each in hosts:
        if each["state"] == "unseen":
            since = timestamp(each["seen"])
            advice = f"If it is gone for good: amplifier host adopt {each['host']}"
            click.echo(f"Host {each['host']} has given no sign since {since}. {advice}", err=True)
    for each in killed:
        advice = "Start it again with: amplifier up; or forget it with: amplifier stop --all"
        click.echo(f"amplifier: process {each.get('pid')} of {_folders_of(each)} was killed. {advice}", err=True)
    for undeclared_queue in undeclared:
        click.echo(str(undeclared_queue), err=True)
    if not owners and not hosts and not killed:
        lost = {(each.project, each.queue) for each in undeclared}
        waits = any((row["waiting"] or row["at_work"]) and (row["project"], row["queue"]) not in lost for row in rows)
        advice = "Waiting events are handled by" if waits else "Start with"
        click.echo(f"Nothing runs. {advice}: amplifier up BUNDLE", err=True)
    for owner in owners:
        since, folders = timestamp(owner.get("since")), _folders_of(owner)
        text = f"Process {owner.get('pid')} since {since} in {folders}. Stop it there with: amplifier stop --all"
        click.echo(f"amplifier: {owner['problem']}" if "problem" in owner else text, err=True)


def _folders_of(owner: dict[str, Any]) -> str:
    return ", ".join(map(shorten_home, sorted(set(owner.get("projects") or ()))))
