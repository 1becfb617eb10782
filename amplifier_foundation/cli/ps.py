"""`amplifier ps`: what runs now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .app import json_option, opened_inbox, plugins_of, run_async
from .output import print_json, print_table, timestamp

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore


@click.command()
@json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    """List the processes that run background sessions, and what each has at work and waiting."""
    rows = run_async(_rows(ctx))
    if as_json:
        print_json("ps/1", rows)
        return
    print_table(
        ("PID", "PROJECT", "BUNDLES", "SINCE", "AT WORK", "WAITING"),
        (
            (
                str(row["pid"]),
                row["project"],
                ", ".join(row["bundles"]),
                row["since"],
                _at_work(row),
                str(row["waiting"]),
            )
            for row in rows
        ),
        empty="Nothing runs. Start something with: amplifier up BUNDLE",
    )


def _at_work(row: dict[str, Any]) -> str:
    return ", ".join(f"{each['session_id']} since {each['since']}" for each in row["at_work"]) or "-"


async def _rows(ctx: click.Context) -> list[dict[str, Any]]:
    from ..lock import running_owner

    owner = running_owner()
    if owner is None:
        return []
    async with opened_inbox(plugins_of(ctx)) as store:
        return [{**owner, "project": each, **await _work(store, each)} for each in sorted(set(owner["projects"]))]


async def _work(store: DurableStore, project: str) -> dict[str, Any]:
    claimed = await store.deliveries(project=project, state="claimed", limit=1_000)
    waiting = await store.deliveries(project=project, state="pending", limit=1_000)
    at_work = [{"session_id": each.session_id, "since": timestamp(each.updated)} for each in claimed]
    return {"at_work": at_work, "waiting": len(waiting)}
