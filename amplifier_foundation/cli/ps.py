"""Run `amplifier ps`: list background sessions with their state and the counts of their queues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import SessionConflict, StoreError
from amplifier_core.ids import host_of

from ..background.keys import RUNS
from ..documents.times import format_time
from . import exits
from .app import json_option, storage_plugins, use_inbox
from .columns import add_counts, as_json, cell, columns_of, forget_counts, new_row, shorten_home
from .loops import run_reading
from .output import print_json, print_table, timestamp
from .processes import list_running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.storage import Delivery, DurableStore

    from .columns import Row

    Rows = dict[tuple[str, str], Row]

LEFT_OUT = ("LAST EVENT", "FOLDER", "DROPPED", "DONE", "HOSTS", "AT WORK", "TO APPROVE", "WAITING", "DEAD", "STATE")
"""Columns that a narrow terminal does not get, the least important first."""


@click.command(epilog="Example: amplifier ps")
@json_option
@click.pass_context
@run_reading
async def ps(ctx: click.Context, as_json: bool) -> None:
    """List the running background sessions, and stopped ones with waiting or dead events.

    DONE counts events still in the store. DROPPED counts refused and skipped events: amplifier logs tells why. DEAD
    counts events that failed every attempt: amplifier trigger dead. The exit code is 1 while one is degraded or failed.
    A store that cannot be read leaves the counts out.
    """
    from ..sessions.lock import running_owners

    owners = running_owners()
    rows: Rows = {}
    for owner in owners:
        rows |= _running_rows(owner)
    failure: StoreError | None = None
    hosts: list[dict[str, Any]] = []
    try:
        hosts = await _count_deliveries(ctx, rows)
    except StoreError as error:
        if not rows:
            raise
        failure = error
        _show_failure(rows, failure)
    silent = {project for owner in owners if "problem" in owner for project in owner.get("projects") or ()}
    for row in rows.values():
        row["state"] = "unknown" if row["project"] in silent else row["state"]
    facts = ("pid", "hosts", "waiting", "at_work", "dead")
    shown = [row for _, row in sorted(rows.items()) if any(row[key] for key in facts)]
    _print(owners, hosts, shown, to_json=as_json)
    if failure is not None:
        raise failure
    if any(row["state"] in ("degraded", "failed") for row in shown):
        ctx.exit(exits.FAILED)


def _running_rows(owner: dict[str, Any]) -> Rows:
    """Return a row for each background session run by `owner`; when it does not answer, it gets a `problem`."""
    rows: Rows = {}
    try:
        for key, session_id, row in list_running(owner):
            facts = {"state": row["status"], "restarts": row["restart_count"]}
            facts |= {name: row.get(name) for name in ("reason", "next_try", "postponed")}
            rows[key] = new_row(*key, id=session_id, pid=owner["pid"], **facts)
    except SessionConflict as error:
        owner["problem"] = str(error)
    return rows


async def _count_deliveries(ctx: click.Context, rows: Rows) -> list[dict[str, Any]]:
    """Add the counts of the store to the rows, and what its other hosts run; return these hosts."""
    async with use_inbox(storage_plugins(ctx)) as store:
        hosts = await _add_hosts(store, rows)
        for counted in [each for each in await store.delivery_counts() if each.queue != RUNS]:
            add_counts(_row_of(rows, counted.project, counted.queue), counted)
        for each in [each for each in await store.deliveries(state="claimed", limit=1_000) if each.queue != RUNS]:
            work = {"session_id": each.session_id, "since": format_time(each.updated), "host": _host_of(each)}
            _row_of(rows, each.project, each.queue)["at_work"].append(work)
        if any(row["waiting"] for row in rows.values()):
            await _add_approvals(store, rows)
    return hosts


async def _add_hosts(store: DurableStore, rows: Rows) -> list[dict[str, Any]]:
    """Add what the processes of a shared store run, where no process here does; return these processes."""
    if not hasattr(store, "fenced"):  # the store of one host
        return []
    from ..background.hosts.people import describe_hosts
    from ..background.hosts.sharing import shared_store

    shared = shared_store(store)
    hosts = await describe_hosts(shared) if shared is not None else []
    for each in hosts:
        for project, queues in (each["states"] if each["state"] != "unseen" else {}).items():
            for queue, (state, reason) in queues.items():
                row = _row_of(rows, project, queue)
                row["hosts"].append(each["host"])
                if row["state"] == "not running" and each["role"] == "up":
                    row.update(state=state, reason=reason)
    return hosts


async def _add_approvals(store: DurableStore, rows: Rows) -> None:
    from amplifier_core.clock import SystemClock

    from ..background.approvals import read_all

    for each in await read_all(store, SystemClock().now()):
        if each.state == "pending" and each.queue != RUNS:
            _row_of(rows, each.project, each.queue)["approvals"].append(each.id)


def _show_failure(rows: Rows, failure: StoreError) -> None:
    for row in rows.values():
        forget_counts(row)
        if row["state"] == "running":
            row["state"], row["reason"] = "degraded", str(failure)


def _host_of(delivery: Delivery) -> str | None:
    """Return the host of a claimed delivery; None for a store of one host."""
    from ..background.hosts.people import last_owner

    return host_of(last_owner(delivery)) or None if hasattr(delivery, "owners") else None


def _row_of(rows: Rows, project: str, queue: str) -> Row:
    return rows.setdefault((project, queue), new_row(project, queue))


def _print(
    owners: Sequence[Mapping[str, Any]], hosts: Sequence[Mapping[str, Any]], rows: Sequence[Row], *, to_json: bool
) -> None:
    if to_json:
        shown = {"processes": owners, "hosts": hosts, "background_sessions": [as_json(row) for row in rows]}
        print_json("ps/3", shown)
        return
    columns = columns_of("ps")
    if sys.stdout.isatty():
        columns = [column for column in columns if column.at_terminal(rows)]
    if rows:
        headings = [column.heading for column in columns]
        print_table(
            headings,
            ([cell(column, row) for column in columns] for row in rows),
            empty="",
            shrink=("STATE", "FOLDER"),
            leave_out=LEFT_OUT,
        )
    for each in hosts:
        if each["state"] == "unseen":
            since = timestamp(each["seen"])
            advice = f"If it is gone for good: amplifier host adopt {each['host']}"
            click.echo(f"Host {each['host']} has given no sign since {since}. {advice}", err=True)
    if not owners and not hosts:
        waits = any(row["waiting"] or row["at_work"] for row in rows)
        advice = "Waiting events are handled by" if waits else "Start with"
        click.echo(f"Nothing runs. {advice}: amplifier up BUNDLE", err=True)
    for owner in owners:
        folders = ", ".join(map(shorten_home, sorted(set(owner.get("projects") or ()))))
        since = timestamp(owner.get("since"))
        text = f"Process {owner.get('pid')} since {since} in {folders}. Stop it there with: amplifier stop --all"
        click.echo(f"amplifier: {owner['problem']}" if "problem" in owner else text, err=True)
