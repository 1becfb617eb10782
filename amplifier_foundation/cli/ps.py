"""`amplifier ps`: the background sessions, and what each has at work and waiting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import SessionConflict

from .app import json_option, opened_inbox, plugins_of, run_async
from .output import print_json, print_table, timestamp
from .running.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.storage import Delivery, Tally

_HEADINGS = ("SESSION", "STATE", "WAITING", "AT WORK", "DONE", "DEAD", "LAST EVENT", "PID", "FOLDER")


@click.command()
@json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    """List the background sessions that run, and those that do not and for which something waits.

    DONE counts what is not forgotten yet; DEAD are the events that were given up: amplifier trigger dead.
    """
    owner, rows = run_async(_found(ctx))
    if as_json:
        print_json("ps/2", {"process": owner, "sessions": rows})
        return
    if rows:
        _print(rows)
    click.echo(_about(owner, rows), err=True)


def _print(rows: list[dict[str, Any]]) -> None:
    """Print a row for each; a terminal gets the columns that tell something."""
    cells = [_cells(row) for row in rows]
    shown = [*range(len(_HEADINGS))]
    if sys.stdout.isatty():
        shown = [*shown[:-2], *shown[-1:]] if len({row["project"] for row in rows}) > 1 else shown[:-2]
    print_table([_HEADINGS[n] for n in shown], ([row[n] for n in shown] for row in cells), empty="")


def _about(owner: Mapping[str, Any] | None, rows: list[dict[str, Any]]) -> str:
    """Return what is known of the process that runs, or what to do where there is none."""
    if owner is None:
        waits = any(row["waiting"] or row["at_work"] for row in rows)
        return f"Nothing runs. {'What waits is handled by' if waits else 'Start with'}: amplifier up BUNDLE"
    if "problem" in owner:
        return f"amplifier: {owner['problem']}"
    folders = ", ".join(map(_short, sorted(set(owner["projects"]))))
    return f"Process {owner['pid']} since {owner['since']} in {folders}. End it with: amplifier stop --all"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    at_work = ", ".join(f"{each['session_id']} since {each['since']}" for each in row["at_work"])
    return (
        f"{row['bundle']}/{row['name']}",
        row["state"] + (f": {one_line(row['reason'], 80)}" if row["reason"] else ""),
        str(row["waiting"]),
        at_work or "-",
        str(row["done"]),
        str(row["dead"]),
        row["last_event"] or "-",
        str(row["pid"] or "-"),
        _short(row["project"]),
    )


def _short(folder: str) -> str:
    home = str(Path.home())
    return "~" + folder.removeprefix(home) if folder == home or folder.startswith(f"{home}/") else folder


async def _found(ctx: click.Context) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return what is known of the process that runs, None when there is none, and of each background session."""
    from ..lock import running_owner

    owner = running_owner()
    rows = await _running(owner) if owner is not None else {}
    async with opened_inbox(plugins_of(ctx)) as store:
        for tally in await store.tallies():
            _count(rows, tally)
        for each in await store.deliveries(state="claimed", limit=1_000):
            _add_work(rows, each)
    if owner is not None and "problem" in owner:
        for row in rows.values():
            row["state"] = "unknown" if row["project"] in owner["projects"] else row["state"]
    return owner, [rows[key] for key in sorted(rows) if _matters(rows[key])]


async def _running(owner: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a row for each background session that the owner runs; `owner` gets a `problem` when it does not say."""
    from ..background.lane import lane_key
    from ..control import ask

    try:
        answer = await ask(owner, "status")
    except SessionConflict as error:
        owner["problem"] = str(error)
        return {}
    return {
        (each["project"], lane_key(each["bundle"], row["name"])): {
            **_row(each["project"], each["bundle"], row["name"]),
            "id": session_id,
            "state": row["status"],
            "reason": row["reason"],
            "restarts": row["restart_count"],
            "pid": owner["pid"],
        }
        for each in answer
        for session_id, row in each["sessions"].items()
    }


def _row(project: str, bundle: str, name: str) -> dict[str, Any]:
    about = {"bundle": bundle, "name": name, "project": project, "id": None, "pid": None}
    state = {"state": "not running", "reason": "", "restarts": 0}
    return {**about, **state, "waiting": 0, "at_work": [], "done": 0, "dead": 0, "dropped": 0, "last_event": None}


def _of(rows: dict[tuple[str, str], dict[str, Any]], project: str, lane: str) -> dict[str, Any]:
    bundle, _, name = lane.rpartition("/")
    return rows.setdefault((project, lane), _row(project, bundle, name))


def _count(rows: dict[tuple[str, str], dict[str, Any]], tally: Tally) -> None:
    row = _of(rows, tally.project, tally.lane)
    figures: Iterable[tuple[str, str]] = (
        ("waiting", "pending"),
        ("done", "done"),
        ("dead", "dead"),
        ("dropped", "refused"),
        ("dropped", "skipped"),
    )
    for name, state in figures:
        row[name] += tally.counts.get(state, 0)  # type: ignore[call-overload]
    row["last_event"] = max(row["last_event"] or "", timestamp(tally.newest))


def _add_work(rows: dict[tuple[str, str], dict[str, Any]], delivery: Delivery) -> None:
    work = {"session_id": delivery.session_id, "since": timestamp(delivery.updated)}
    _of(rows, delivery.project, delivery.lane)["at_work"].append(work)


def _matters(row: Mapping[str, Any]) -> bool:
    return bool(row["pid"] or row["waiting"] or row["at_work"] or row["dead"])
