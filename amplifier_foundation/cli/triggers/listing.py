"""`amplifier trigger list`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ..app import bundle_at, bundle_option, json_option, opened_inbox, plugins_of, run_async
from ..output import print_json, print_table, timestamp
from .timing import declared_in, next_fire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from amplifier_core.storage import DeliveryState, Tally

_NONE: Mapping[DeliveryState, int] = {}


@click.command("list")
@bundle_option
@json_option
@click.pass_context
def list_(ctx: click.Context, bundle_path: str | None, as_json: bool) -> None:
    """List what wakes each background session, when it does next, and what came of it so far.

    LAG is how long the oldest event that waits has waited; DROPPED are those that were refused or skipped.
    """
    rows = run_async(_rows(ctx, bundle_path))
    if as_json:
        print_json("trigger.list/1", rows)
        return
    print_table(
        ("SESSION", "TRIGGER", "CONFIG", "NEXT FIRE", "LAST EVENT", "WAITING", "LAG", "DONE", "DROPPED", "DEAD"),
        map(_cells, rows),
        empty="The bundle declares no triggers.",
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["session"],
        row["trigger"],
        json.dumps(row["config"], ensure_ascii=False),
        row["next_fire"] or "-",
        row["last_event"] or "-",
        str(row["waiting"]),
        f"{row['lag']:.0f} s" if row["waiting"] else "-",
        *(str(row[state]) for state in ("done", "dropped", "dead")),
    )


async def _rows(ctx: click.Context, bundle_path: str | None) -> list[dict[str, Any]]:
    from amplifier_core.clock import SystemClock
    from amplifier_core.utils import redact_secrets

    from ...background.lane import MANUAL, lane_key
    from ...paths import project_of

    plugins, now, rows = plugins_of(ctx), SystemClock().now(), list[dict[str, Any]]()
    bundle = await bundle_at(bundle_path, plugins)
    project = project_of(bundle.base_path)
    async with opened_inbox(plugins) as store:
        tallies = {tally.trigger: tally for tally in await store.tallies(project=project)}
        for session in bundle.background_sessions:
            for each in declared_in(bundle, session):
                known = {"session": each.session, "trigger": each.config.module}
                fires = await next_fire(each, now, project=project, plugins=plugins, store=store)
                config = redact_secrets(each.config.config)
                rows.append({**known, "config": config, **_fared(fires, tallies.get(each.key), now)})
            by_hand = tallies.get(f"{lane_key(bundle.name, session.name)}/{MANUAL}")
            if by_hand is not None:
                rows.append({"session": session.name, "trigger": "by hand", "config": {}, **_fared(None, by_hand, now)})
    return rows


def _fared(fires: datetime | None, tally: Tally | None, now: datetime) -> dict[str, Any]:
    """Return the facts of a trigger; `lag` in seconds."""
    counts = tally.counts if tally is not None else _NONE
    since = tally.waiting_since if tally is not None else None
    return {
        "next_fire": timestamp(fires),
        "last_event": timestamp(tally.newest if tally is not None else None),
        "waiting": counts.get("pending", 0) + counts.get("claimed", 0),
        "lag": max(0.0, (now - since).total_seconds()) if since is not None else 0.0,
        "done": counts.get("done", 0),
        "dropped": counts.get("refused", 0) + counts.get("skipped", 0),
        "dead": counts.get("dead", 0),
    }
