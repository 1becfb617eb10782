"""Run `amplifier trigger list`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...operations.timing import declared_in, find_url, next_fire
from ..app import (
    bundle_option,
    find_own_bundle,
    json_option,
    load_bundle_at,
    plugins_of,
    project_here,
    read_settings_here,
    use_inbox,
)
from ..loops import enter_loop, run_reading
from ..output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DeliveryCounts, DeliveryState, DurableStore

    from ...bundle.model import Bundle

LEFT_OUT = ("CONFIG", "LAG", "DROPPED", "DONE", "LAST EVENT", "AT WORK", "DEAD", "WAITING", "NEXT FIRE", "TRIGGER")
"""Columns that a narrow terminal does not get, the least important first."""
_NONE: Mapping[DeliveryState, int] = {}


@click.command("list", epilog="Example: amplifier trigger list")
@bundle_option
@json_option
@click.pass_context
@run_reading
async def list_(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List the triggers of each background session, with the next fire and the counts so far.

    Without --bundle, and without a bundle.md here, they are those of the bundles that run here. A stopped background
    session has no next fire.

    LAG is the age of the oldest event that waits or is at work. DROPPED counts refused and skipped events.
    """
    from ...background.undeclared import find_stranded, find_undeclared

    plugins, rows = plugins_of(ctx), list[dict[str, Any]]()
    async with use_inbox(plugins) as store:
        bundles = await _find_bundles(store, plugins, bundle_path)
        for bundle, project in bundles:
            rows += await _list_triggers(store, plugins, bundle, project)
        undeclared = await find_undeclared(store, bundles)
        undeclared += await find_stranded(store, [bundle for bundle, _ in bundles])
    if as_json:
        print_json("trigger.list/2", rows)
        return
    headings = ("TRIGGER", "CONFIG", "NEXT FIRE", "LAST EVENT", "WAITING", "AT WORK", "LAG", "DONE", "DROPPED", "DEAD")
    cells = [
        (
            f"{row['background_session']} (paused)" if row["paused"] else row["background_session"],
            f"{row['trigger']} at {row['url']}" if row["url"] else row["trigger"],
            json.dumps(row["config"], ensure_ascii=False) if row["config"] else "-",
            row["next_fire"] or "-",
            row["last_event"] or "-",
            str(row["waiting"]),
            str(row["at_work"]),
            f"{row['lag']:.0f} s" if row["waiting"] or row["at_work"] else "-",
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


async def _find_bundles(store: DurableStore, plugins: Plugins, path: str | None) -> list[tuple[Bundle, str]]:
    """Return the bundle at `path`, or the own one of this project, or those that run in it; each with its project."""
    from ...background.undeclared import source_of
    from ...operations.running import list_all_running
    from ...paths import project_of

    running: set[tuple[str, str]] = set()
    if path is None and find_own_bundle(read_settings_here()) is None:
        here = project_here()
        running = {each.key for each in list_all_running() if each.key[0] == here}
    sources = {await source_of(store, *key) for key in running} - {""}
    paths: list[str | None] = [*sorted(sources)] or [path]
    bundles = [await load_bundle_at(each, plugins, runs=False) for each in paths]
    return [(bundle, project_of(bundle.base_path)) for bundle in bundles]


async def _list_triggers(store: DurableStore, plugins: Plugins, bundle: Bundle, project: str) -> list[dict[str, Any]]:
    from amplifier_core.clock import SystemClock
    from amplifier_core.utils.secrets import redact_all

    from ...background.keys import MANUAL, queue_key
    from ...background.lifecycle import read_wish

    now, rows = SystemClock().now(), list[dict[str, Any]]()
    counts = _by_declaration(await store.delivery_counts(project=project))
    for session in bundle.background_sessions:
        queue = queue_key(bundle.name, session.name)
        wish = await read_wish(store, project, queue)
        known = {"background_session": session.name, "paused": wish == "paused"}
        for each in declared_in(bundle, session):
            await enter_loop()
            url = await find_url(each, project=project, plugins=plugins, store=store)
            about = {**known, "trigger": each.config.module, "url": url or None}
            config = redact_all(each.config.config)
            coming = await next_fire(each, now, project=project, plugins=plugins, store=store)
            fires = None if wish == "stopped" else coming
            rows.append({**about, "config": config, **_counts(fires, counts.get(each.key), now)})
        by_hand = counts.get(f"{queue}/{MANUAL}")
        if by_hand is not None:
            about = {**known, "trigger": "by hand", "url": None}
            rows.append({**about, "config": {}, **_counts(None, by_hand, now)})
    return rows


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
        "waiting": counts.get("pending", 0),
        "at_work": counts.get("claimed", 0),
        "lag": max(0.0, (now - since).total_seconds()) if since is not None else 0.0,
        "done": counts.get("done", 0),
        "dropped": counts.get("refused", 0) + counts.get("skipped", 0),
        "dead": counts.get("dead", 0),
    }
