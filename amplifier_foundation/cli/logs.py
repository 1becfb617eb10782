"""Run `amplifier logs`: show the events of background sessions, running or not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.utils.secrets import redact_text

from ..background.keys import RUNS
from ..documents.json_text import dump_json
from ..operations.running import list_all_running
from .ages import read_age
from .app import project_here, storage_plugins, use_inbox
from .completing import complete_background_sessions
from .loops import enter_loop, run_reading
from .output import console, timestamp
from .view import MARKS, STRIKING

if TYPE_CHECKING:
    from datetime import timedelta

    from amplifier_core.storage import Delivery, DurableStore

    from .delivery_history import HistoryEntry

LINES = 50
POLL = 0.3
"""Seconds between two looks at the store."""
RECENT = 200
"""The newest deliveries, searched for new steps besides the unfinished ones."""
EVENTS_EACH = 3
"""Events in the log for each delivery: its completion, and what it emits."""
MOST = 100_000
"""Most deliveries searched for one answer."""


@click.command(epilog="Example: amplifier logs -f reviewer --since 1h")
@click.argument("name", required=False, shell_complete=complete_background_sessions)
@click.option("-f", "--follow", is_flag=True, help="Wait for new events, until Ctrl-C.")
@click.option("--since", metavar="AGE", callback=read_age, help="Show this much of the past: 90s, 30m, 12h, 7d.")
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

    Each accepted, refused or skipped event, its session, and its result; each problem, and its end.
    """
    started = datetime.now(UTC)
    begin = started - since if since else None
    shown = MOST if lines is None and since is not None else LINES if lines is None else lines
    async with use_inbox(storage_plugins(ctx)) as store:
        following = await Following.of(store, name)
        following.shows_tools = tools
        count = shown
        while begin is not None and count < MOST and not await following.reaches(begin, count):
            count = max(1_000, 4 * count)
        past = [each for each in await following.read_new(count) if begin is None or each.at >= begin]
        for each in past[-shown:] if shown else ():
            _print(each, jsonl=jsonl)
        if not past and not follow:
            click.echo("No events" + (" in this time." if since else " yet."), err=True)
        if follow:
            from asyncio import sleep

            await enter_loop()
        while follow:
            await sleep(POLL)
            for each in await following.read_new(RECENT):
                if each.at >= started:
                    _print(each, jsonl=jsonl)


@dataclass(slots=True)
class Following:
    """Finds new steps of deliveries in the store, from one look to the next."""

    store: DurableStore
    queues: list[tuple[str, str]] | None = None
    shows_tools: bool = False
    _reported: dict[tuple[str, str, datetime], None] = field(default_factory=dict)
    _open: dict[str, Delivery] = field(default_factory=dict)
    _seen: dict[str, Delivery] = field(default_factory=dict)
    _sequence: int | None = None

    @classmethod
    async def of(cls, store: DurableStore, name: str | None) -> Following:
        """Follow the background sessions with this name, queue or id; None: all. Those of this folder have priority.

        Raises `NoSuchBackgroundSession` when it neither runs nor has events in the store.
        """
        from ..background.asking import NoSuchBackgroundSession

        if name is None:
            return cls(store)
        known = {(counted.project, counted.queue): "" for counted in await store.delivery_counts()}
        known |= {key: session_id for key, session_id, _ in list_all_running()}
        queues = [key for key, session_id in known.items() if name in (key[1], key[1].rpartition("/")[2], session_id)]
        if not queues:
            raise NoSuchBackgroundSession(name, [queue.rpartition("/")[2] for _, queue in known])
        here = project_here()
        return cls(store, [key for key in queues if key[0] == here] or queues)

    async def read_new(self, count: int) -> list[HistoryEntry]:
        """Return new steps of the newest `count` deliveries and of all unfinished ones, in order of time."""
        from .delivery_history import read_history

        newest = await self._find(limit=count)
        unfinished = [each for state in ("pending", "claimed") for each in await self._find(state=state, limit=1_000)]
        found = {each.delivery_id: each for each in (*newest, *unfinished)}
        for delivery_id in self._open.keys() - found.keys():
            before = self._open[delivery_id]
            same = await self.store.deliveries(event_id=before.event.event_id)
            found[delivery_id] = next((each for each in same if each.delivery_id == delivery_id), before)
        self._open = {each.delivery_id: each for each in unfinished}
        changed = [each for each in found.values() if self._seen.get(each.delivery_id) != each]
        self._seen = {key: each for key, each in found.items() if each.state != "claimed"}  # its session may start yet
        entries = [
            each for delivery in changed for each in await read_history(self.store, delivery, tools=self.shows_tools)
        ]
        entries += await self._read_changes(count)
        fresh = [each for each in entries if each.identity not in self._reported]
        self._reported.update(dict.fromkeys(each.identity for each in fresh))
        while len(self._reported) > MOST:
            del self._reported[next(iter(self._reported))]
        return sorted(fresh, key=lambda each: each.at)

    async def _read_changes(self, count: int) -> list[HistoryEntry]:
        """Return what the log of events says of the background sessions themselves since the last look.

        The first look goes back over as many events as `count` deliveries are likely to have.
        """
        from .delivery_history import read_change

        last = await self.store.last_sequence()
        start = max(0, last - EVENTS_EACH * count) if self._sequence is None else self._sequence
        entries = []
        while start < last and (page := await self.store.events(since=start, limit=1_000)):
            entries += [entry for event in page if (entry := read_change(event)) is not None]
            start = page[-1].sequence or last
        self._sequence = last
        return [each for each in entries if self.queues is None or self._is_followed(each)]

    def _is_followed(self, entry: HistoryEntry) -> bool:
        of_bundle = entry.queue.endswith("/")
        return any(
            entry.project == project and (queue == entry.queue or (of_bundle and queue.startswith(entry.queue)))
            for project, queue in self.queues or ()
        )

    async def reaches(self, since: datetime, count: int) -> bool:
        """Return whether the newest `count` deliveries include all since then."""
        newest = await self._find(limit=count)
        return len(newest) < count or min(each.created for each in newest) < since

    async def _find(self, **wanted: Any) -> list[Delivery]:
        if self.queues is None:
            return [each for each in await self.store.deliveries(**wanted) if each.queue != RUNS]
        return [
            each
            for project, queue in self.queues
            for each in await self.store.deliveries(project=project, queue=queue, **wanted)
        ]


def _print(entry: HistoryEntry, *, jsonl: bool) -> None:
    said = redact_text(entry.text)
    if jsonl:
        facts = {
            "at": entry.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "background_session": entry.background_session,
            "bundle": entry.bundle,
            "queue": entry.queue,
            "project": entry.project,
            "kind": entry.kind,
            "text": said,
            "session_id": entry.delivery.session_id if entry.delivery else None,
            "delivery_id": entry.delivery.delivery_id if entry.delivery else None,
            "event_id": entry.delivery.event.event_id if entry.delivery else entry.event_id,
            "attempts": entry.delivery.attempts if entry.delivery else None,
            "owners": list(getattr(entry.delivery, "owners", ())),
        }
        click.echo(dump_json(facts))
        sys.stdout.flush()
        return
    if sys.stdout.isatty():
        from rich.text import Text

        mark, style = MARKS[entry.kind]
        line = Text.assemble((timestamp(entry.at), "dim"), " ", (mark, style), " ")
        line.append(f"{entry.background_session:<12}", "bold").append(" ")
        console().print(line.append(said, style if entry.kind in STRIKING else ""))
    else:
        click.echo(f"{timestamp(entry.at)} {MARKS[entry.kind][0]} {entry.background_session:<12} {said}")
        sys.stdout.flush()
