"""`amplifier logs`: what happened to background sessions, whether they run or not."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from .app import opened_inbox, plugins_of, run_async
from .output import console, timestamp
from .view import MARKS, STRIKING

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery, DurableStore

    from .happenings import Happening

LINES = 50
POLL = 0.3
"""Seconds between two looks at the store."""
RECENT = 200
"""Deliveries, the newest ones, that are looked at for news besides those that are not over."""
MOST = 100_000
"""Deliveries that are looked at for one answer."""


def _since(ctx: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    from ..retention import age

    try:
        return age(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--since", metavar="AGE", callback=_since, help="What happened in this time: 90s, 30m, 12h, 7d.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help=f"How many at most; {LINES}, or all with --since.")
@click.option("--jsonl", is_flag=True, help="Print a line of JSON for each.")
@click.pass_context
def logs(
    ctx: click.Context, name: str | None, follow: bool, since: timedelta | None, lines: int | None, jsonl: bool
) -> None:
    """Show what happened to the background session NAME, or to all of them.

    Each event that was accepted, refused or skipped, the session that it woke, and what came of it.
    """
    shown = MOST if lines is None and since is not None else LINES if lines is None else lines
    run_async(
        _logs(ctx, name, since=datetime.now(UTC) - since if since else None, lines=shown, jsonl=jsonl, follow=follow)
    )


async def _logs(
    ctx: click.Context, name: str | None, *, since: datetime | None, lines: int, jsonl: bool, follow: bool
) -> None:
    started = datetime.now(UTC)
    async with opened_inbox(plugins_of(ctx)) as store:
        lanes = await _lanes(store, name)
        following = Following(store, lanes)
        found = await following.news(lines) if since is None else await _within(following, since)
        past = [each for each in found if since is None or each.at >= since]
        for each in past[-lines:] if lines else ():
            _print(each, jsonl=jsonl)
        if not past and not follow:
            click.echo("Nothing has happened" + (" in this time." if since else " yet."), err=True)
        while follow:
            await asyncio.sleep(POLL)
            for each in await following.news(RECENT):
                if each.at >= started:
                    _print(each, jsonl=jsonl)


async def _lanes(store: DurableStore, name: str | None) -> list[tuple[str, str]] | None:
    """Return project and lane of each background session of that name; None for all of them.

    Raises `NoSuchBackgroundSession` for a name that neither runs nor has anything in the store.
    """
    from ..control import NoSuchBackgroundSession

    if name is None:
        return None
    known = {(tally.project, tally.lane): [tally.lane] for tally in await store.tallies()}
    known |= await _running()
    lanes = [key for key, names in known.items() if name in (key[1], key[1].rpartition("/")[2], *names)]
    if not lanes:
        raise NoSuchBackgroundSession(name, [lane.rpartition("/")[2] for _, lane in known])
    return lanes


async def _running() -> dict[tuple[str, str], list[str]]:
    from amplifier_core.errors import SessionConflict

    from ..background.lane import lane_key
    from ..control import ask
    from ..lock import running_owner

    owner = running_owner()
    try:
        answer = await ask(owner, "status") if owner is not None else []
    except SessionConflict:  # it does not say; what the store knows is shown all the same
        return {}
    return {
        (each["project"], lane_key(each["bundle"], row["name"])): [session_id]
        for each in answer
        for session_id, row in each["sessions"].items()
    }


async def _within(following: Following, since: datetime) -> list[Happening]:
    """Return all that happened since then."""
    count = 1_000
    while count < MOST and not await following.reaches(since, count):
        count *= 4
    return await following.news(count)


@dataclass(slots=True)
class Following:
    """What is new in the store, from one look to the next."""

    store: DurableStore
    lanes: list[tuple[str, str]] | None
    _told: dict[tuple[str, str, datetime], None] = field(default_factory=dict)
    _open: dict[str, Delivery] = field(default_factory=dict)
    _seen: dict[str, Delivery] = field(default_factory=dict)

    async def news(self, count: int) -> list[Happening]:
        """Return what was not told before, in order of time: of the newest `count` deliveries, and those not over."""
        from .happenings import happenings

        newest, is_open = await self._found(limit=count), await self._not_over()
        found = {each.delivery_id: each for each in (*newest, *is_open)}
        for delivery_id in self._open.keys() - found.keys():
            found[delivery_id] = await self._again(self._open[delivery_id])
        self._open = {each.delivery_id: each for each in is_open}
        changed = [each for each in found.values() if self._seen.get(each.delivery_id) != each]
        self._seen = {key: each for key, each in found.items() if each.state != "claimed"}  # its session may begin yet
        told = [each for delivery in changed for each in await happenings(self.store, delivery)]
        fresh = [each for each in told if each.identity not in self._told]
        self._told.update(dict.fromkeys(each.identity for each in fresh))
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        return sorted(fresh, key=lambda each: each.at)

    async def reaches(self, since: datetime, count: int) -> bool:
        """Return whether the newest `count` deliveries are all those since then."""
        newest = await self._found(limit=count)
        return len(newest) < count or min(each.created for each in newest) < since

    async def _not_over(self) -> list[Delivery]:
        states = ("pending", "claimed")
        return [each for state in states for each in await self._found(state=state, limit=1_000)]

    async def _again(self, delivery: Delivery) -> Delivery:
        same = await self.store.deliveries(event_id=delivery.event.event_id)
        return next((each for each in same if each.delivery_id == delivery.delivery_id), delivery)

    async def _found(self, **wanted: Any) -> list[Delivery]:
        if self.lanes is None:
            return await self.store.deliveries(**wanted)
        return [
            each
            for project, lane in self.lanes
            for each in await self.store.deliveries(project=project, lane=lane, **wanted)
        ]


def _print(happening: Happening, *, jsonl: bool) -> None:
    if jsonl:
        click.echo(json.dumps(_facts(happening), ensure_ascii=False))
        sys.stdout.flush()
        return
    from rich.text import Text

    mark, style = MARKS[happening.kind]
    line = Text.assemble(
        (timestamp(happening.at), "dim"), " ", (mark, style), " ", (f"{happening.name:<12}", "bold"), " "
    )
    line.append(happening.text, style if happening.kind in STRIKING else "")
    if sys.stdout.isatty():
        console().print(line)
    else:
        click.echo(line.plain)
        sys.stdout.flush()


def _facts(happening: Happening) -> dict[str, Any]:
    delivery = happening.delivery
    return {
        "at": happening.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "bundle": happening.bundle,
        "name": happening.name,
        "project": delivery.project,
        "kind": happening.kind,
        "text": happening.text,
        "session_id": delivery.session_id,
        "delivery_id": delivery.delivery_id,
        "event_id": delivery.event.event_id,
        "attempts": delivery.attempts,
    }
