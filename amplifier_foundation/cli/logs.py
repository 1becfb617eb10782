"""Run `amplifier logs`: show the events of background sessions, running or not."""

from __future__ import annotations

import sys
from datetime import UTC
from typing import TYPE_CHECKING

import click

from amplifier_core.utils.secrets import redact_text

from ..background.store_clock import clock_of
from ..documents.json_text import dump_json
from ..operations.columns import shorten_home
from ..operations.history import MOST, RECENT, Following
from ..operations.running import list_all_running
from .advice import with_retry
from .ages import read_age
from .app import project_here, storage_plugins, use_inbox
from .completing import complete_background_sessions
from .loops import enter_loop, run_reading
from .output import console, timestamp
from .view import MARKS, STRIKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta

    from ..operations.history import HistoryEntry

LINES = 50
POLL = 0.3
"""Seconds between two looks at the store."""


@click.command(epilog="Example: amplifier logs -f reviewer --since 1h")
@click.argument("name", required=False, shell_complete=complete_background_sessions)
@click.option("-f", "--follow", is_flag=True, help="Wait for new events, until Ctrl-C.")
@click.option("--since", metavar="AGE", callback=read_age, help="Show the past: 1h30m, 7d, or a date (UTC).")
@click.option(
    "-n", "--lines", type=click.IntRange(0, 10**9), help=f"At most so many. [default: {LINES}; all with --since]"
)
@click.option("--tools", is_flag=True, help="Also show the tool calls of the sessions.")
@click.option("--jsonl", is_flag=True, help="Print each as a line of JSON.")
@click.pass_context
@run_reading
async def logs(
    ctx: click.Context,
    name: str | None,
    follow: bool,
    since: timedelta | None,
    lines: int | None,
    tools: bool,
    jsonl: bool,
) -> None:
    """Show the events of the background session NAME, or of all. NAME is one of this folder, if there is one.

    Each accepted, refused or skipped event, its session, and its result; each problem, and its end; what people did.
    """
    shown = MOST if lines is None and since is not None else LINES if lines is None else lines
    async with use_inbox(storage_plugins(ctx)) as store:
        started = (await clock_of(store)).now()
        begin = started - since if since is not None else None
        running = list_all_running() if name is not None else ()
        following = await Following.of(store, name, running, project_here())
        following.shows_tools, following.show = tools, timestamp
        count = shown if begin is None else min(shown, 1_000)
        while begin is not None and count < MOST and not await following.reaches(begin, count):
            count = max(1_000, 4 * count)
        past = [each for each in await following.read_new(count) if begin is None or each.at >= begin]
        places: dict[str, set[tuple[str, str]]] = {}
        for each in past:
            places.setdefault(each.background_session, set()).add((each.project, each.queue))
        for each in past[-shown:] if shown else ():
            _print(each, places, jsonl=jsonl)
        if not past and not follow:
            click.echo("No events" + (" in this time." if since is not None else " yet."), err=True)
        if follow:
            from asyncio import sleep

            await enter_loop()
        while follow:
            await sleep(POLL)
            for each in await following.read_new(RECENT):
                if each.at >= started:
                    places.setdefault(each.background_session, set()).add((each.project, each.queue))
                    _print(each, places, jsonl=jsonl)


def _print(entry: HistoryEntry, places: Mapping[str, Collection[object]], *, jsonl: bool) -> None:
    """Print a line; `places` are those of each name: where it has several, the line says which one it is of."""
    said = redact_text(entry.text)
    if jsonl:
        act = entry.act or {}
        facts = {
            "at": entry.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "background_session": entry.background_session,
            "bundle": entry.bundle,
            "queue": entry.queue,
            "project": entry.project,
            "kind": entry.kind,
            "text": said,
            "session_id": entry.delivery.session_id if entry.delivery else act.get("session_id"),
            "delivery_id": entry.delivery.delivery_id if entry.delivery else act.get("delivery_id"),
            "event_id": entry.delivery.event.event_id if entry.delivery else entry.event_id,
            "attempts": entry.delivery.attempts if entry.delivery else None,
            "owners": list(getattr(entry.delivery, "owners", ())),
        }
        if entry.delivery is not None and entry.delivery.event.file_path is not None:
            facts["file_path"] = redact_text(entry.delivery.event.file_path)
            facts["change_type"] = entry.delivery.event.change_type
        click.echo(dump_json({**facts, **{name: act[name] for name in ("act", "by", "via") if name in act}}))
        sys.stdout.flush()
        return
    if entry.kind == "dead" and entry.delivery is not None:
        said = with_retry(said, entry.delivery.delivery_id)
    name = entry.background_session
    if len(places[name]) > 1:
        name = f"{entry.queue} in {shorten_home(entry.project)}"
    if sys.stdout.isatty():
        from rich.text import Text

        mark, style = MARKS[entry.kind]
        line = Text.assemble((timestamp(entry.at), "dim"), " ", (mark, style), " ")
        line.append(f"{name:<12}", "bold").append(" ")
        console().print(line.append(said, style if entry.kind in STRIKING else ""))
    else:
        click.echo(f"{timestamp(entry.at)} {MARKS[entry.kind][0]} {name:<12} {said}")
        sys.stdout.flush()
