"""Run `amplifier trigger list`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...operations.timing import declared_in, next_fire
from ..app import bundle_option, json_option, load_bundle_at, plugins_of, use_inbox
from ..loops import enter_loop, run_reading
from ..output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_core.storage import DeliveryCounts, DeliveryState

LEFT_OUT = ("CONFIG", "LAG", "DROPPED", "DONE", "LAST EVENT", "DEAD", "WAITING", "NEXT FIRE", "TRIGGER")
"""Columns that a narrow terminal does not get, the least important first."""
_NONE: Mapping[DeliveryState, int] = {}


@click.command("list", epilog="Example: amplifier trigger list")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def list_(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List the triggers of each background session, with the next fire and the counts so far.

    A stopped background session has no next fire.

    LAG is the age of the oldest waiting event. DROPPED counts refused and skipped events.
    """
    from amplifier_core.clock import SystemClock
    from amplifier_core.utils.secrets import redact_all

    from ...background.keys import MANUAL, queue_key
    from ...background.lifecycle import read_wish
    from ...background.undeclared import find_stranded, find_undeclared
    from ...paths import project_of

    plugins, now, rows = plugins_of(ctx), SystemClock().now(), list[dict[str, Any]]()
    bundle = await load_bundle_at(bundle_path, plugins, runs=False)
    project = project_of(bundle.base_path)
    async with use_inbox(plugins) as store:
        counts = _by_declaration(await store.delivery_counts(project=project))
        for session in bundle.background_sessions:
            queue = queue_key(bundle.name, session.name)
            stopped = await read_wish(store, project, queue) == "stopped"
            for each in declared_in(bundle, session):
                about = {"background_session": session.name, "trigger": each.config.module}
                config = redact_all(each.config.config)
                await enter_loop()
                coming = await next_fire(each, now, project=project, plugins=plugins, store=store)
                fires = None if stopped else coming
                rows.append({**about, "config": config, **_counts(fires, counts.get(each.key), now)})
            by_hand = counts.get(f"{queue}/{MANUAL}")
            if by_hand is not None:
                about = {"background_session": session.name, "trigger": "by hand"}
                rows.append({**about, "config": {}, **_counts(None, by_hand, now)})
        undeclared = [*await find_undeclared(store, [(bundle, project)]), *await find_stranded(store, [bundle])]
    if as_json:
        print_json("trigger.list/2", rows)
        return
    headings = ("TRIGGER", "CONFIG", "NEXT FIRE", "LAST EVENT", "WAITING", "LAG", "DONE", "DROPPED", "DEAD")
    cells = [
        (
            row["background_session"],
            row["trigger"],
            json.dumps(row["config"], ensure_ascii=False) if row["config"] else "-",
            row["next_fire"] or "-",
            row["last_event"] or "-",
            str(row["waiting"]),
            f"{row['lag']:.0f} s" if row["waiting"] else "-",
            *(str(row[state]) for state in ("done", "dropped", "dead")),
        )
        for row in rows
    ]
    print_table(
        ("BACKGROUND SESSION", *headings),
        cells,
        empty="The bundle declares no triggers.",
        shrink=("CONFIG",),
        leave_out=LEFT_OUT,
    )
    click.echo("".join(f"{queue}\n" for queue in undeclared), err=True, nl=False)


def _by_declaration(counts: Iterable[DeliveryCounts]) -> dict[str, DeliveryCounts]:
    """Return the counts of each declared trigger by its key; those of several hosts are added up."""
    from collections import Counter

    from ...background.keys import declared_key

    found: dict[str, DeliveryCounts] = {}
    for each in counts:
        key = declared_key(each.trigger)
        if (other := found.get(key)) is not None:
            waiting = [since for since in (each.waiting_since, other.waiting_since) if since is not None]
            both = Counter(each.counts) + Counter(other.counts)
            newest = max(each.newest, other.newest)
            each = replace(each, counts=both, newest=newest, waiting_since=min(waiting, default=None))
        found[key] = each
    return found


def _counts(fires: datetime | None, counted: DeliveryCounts | None, now: datetime) -> dict[str, Any]:
    """Return the next fire and the counts of a trigger; `lag` in seconds."""
    counts = counted.counts if counted is not None else _NONE
    since = counted.waiting_since if counted is not None else None
    return {
        "next_fire": timestamp(fires),
        "last_event": timestamp(counted.newest if counted is not None else None),
        "waiting": counts.get("pending", 0) + counts.get("claimed", 0),
        "lag": max(0.0, (now - since).total_seconds()) if since is not None else 0.0,
        "done": counts.get("done", 0),
        "dropped": counts.get("refused", 0) + counts.get("skipped", 0),
        "dead": counts.get("dead", 0),
    }
