"""`amplifier trigger watch`: the events that the triggers of a background session yield, as they come."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from amplifier_core.clock import SystemClock
from amplifier_core.conditions import facts_of
from amplifier_core.errors import TriggerError

from .. import exits
from ..app import bundle_at, bundle_option, opened_inbox, plugins_of, run_async
from ..output import console
from .timing import declared_in, session_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent, TriggerSource

    from ...background.admission import Gate
    from .timing import Declared

POLL = 1.0
"""Seconds after which the log is looked at again for what other processes have emitted."""


@click.command()
@click.argument("name")
@bundle_option
@click.option("-n", "--limit", type=click.IntRange(min=1), help="End after so many events.")
@click.option("--jsonl", is_flag=True, help="Print each event as a line of JSON; `trigger test` reads its `event`.")
@click.pass_context
def watch(ctx: click.Context, name: str, bundle_path: str | None, limit: int | None, jsonl: bool) -> None:
    """Show what would wake the background session NAME, as it comes, until Ctrl-C; runs and stores nothing.

    It begins where `amplifier up` has left off. A webhook's caller is answered, and what it posted is not kept.
    """
    ctx.exit(run_async(_watch(ctx, name, bundle_path, Shown(limit, jsonl=jsonl))))


class Shown:
    """What was shown so far, and how."""

    def __init__(self, limit: int | None, *, jsonl: bool) -> None:
        self._left = limit
        self._jsonl = jsonl

    @property
    def all(self) -> bool:
        """Whether there were as many events as were asked for."""
        return self._left == 0

    def __call__(self, trigger: str, event: TriggerEvent, refused: str | None) -> None:
        """Print one event."""
        if self._left is not None:
            self._left -= 1
        if self._jsonl:
            told = {"trigger": trigger, "event": facts_of(event), "refused": refused}
            click.echo(json.dumps(told, ensure_ascii=False, default=str))
        else:
            self._print(trigger, event, refused)

    def _print(self, trigger: str, event: TriggerEvent, refused: str | None) -> None:
        from rich.text import Text

        from ...lineage import describe_event

        mark, style = ("●", "blue") if refused is None else ("✗", "yellow")
        line = Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", (mark, style), " ", (trigger, "bold"))
        line.append(f"  {describe_event(event)}")
        if refused is not None:
            line.append(f"  would be refused: {refused}", style)
        line.append(f"  {json.dumps(dict(event.data), ensure_ascii=False, default=str)}", "dim")
        console().print(line)


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The log of events between sessions as an `EventSource`, for a process that emits none of them."""

    store: DurableStore

    async def position(self) -> int:
        """Return the sequence of the newest event, 0 when there is none."""
        return await self.store.last_sequence()

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield matching events after `since` (None: from now), then those to come."""
        from ...events.names import Filter

        wanted, last = Filter.of(names, sources), await self.position() if since is None else since
        while True:
            page = await self.store.events(since=last)
            for event in page:
                last = event.sequence or last
                if wanted.wants(event):
                    yield event
            if not page:
                await asyncio.sleep(POLL)


@dataclass(slots=True)
class Watched:
    """The triggers of one background session, each in a task of its own."""

    store: DurableStore
    project: str
    lane: str
    gate: Gate
    show: Shown
    sources: list[tuple[Declared, TriggerSource]] = field(default_factory=list)
    failed: int = 0

    async def run(self) -> None:
        """Watch until every trigger has ended, or enough was shown."""
        async with asyncio.TaskGroup() as group:
            for declared, source in self.sources:
                group.create_task(self._watch(declared, source))

    async def _watch(self, declared: Declared, source: TriggerSource) -> None:
        from ...background.watch import first_cause

        try:
            await self._events(declared, source)
        except Exception as error:
            self.failed += 1
            cause = first_cause(error)
            text = str(cause) if isinstance(cause, TriggerError) else f"{declared.config.module}: {cause}"
            click.echo(f"amplifier: {text}{_who_else(self.project)}", err=True)

    async def _events(self, declared: Declared, source: TriggerSource) -> None:
        from ...background.watch import stop_trigger

        async with asyncio.TaskGroup() as group:
            announcing = group.create_task(_announce(declared, source))
            stream = source.watch()
            try:
                async for event in stream:
                    await self._tell(declared, event)
                    if self.show.all:
                        break
            finally:
                announcing.cancel()
                await stop_trigger(source)
                with suppress(AttributeError):
                    await stream.aclose()  # type: ignore[attr-defined]  # generators have it, other iterators need not
        for _, each in self.sources if self.show.all else ():
            await stop_trigger(each)

    async def _tell(self, declared: Declared, event: TriggerEvent) -> None:
        if not self.show.all:
            refused = await self.gate.judged(self.store, (self.project, self.lane), declared.config, event)
            self.show(declared.key.rpartition("/")[2], event, refused)


async def _announce(declared: Declared, source: TriggerSource) -> None:
    ready = getattr(source, "ready", None)
    await (ready() if ready is not None else asyncio.sleep(0))
    click.echo(f"{declared.key.rpartition('/')[2]} is armed; nothing is run, nothing is stored", err=True)


def _who_else(project: str) -> str:
    """Return who may have what a trigger needs for itself, such as a port."""
    from ...lock import running_owner

    owner = running_owner()
    if owner is None or project not in owner.get("projects", ()):
        return ""
    pid = owner.get("pid", "?")
    return f" (amplifier up, process {pid}, has the same triggers armed; end it with: amplifier stop --all)"


async def _watch(ctx: click.Context, name: str, bundle_path: str | None, show: Shown) -> int:
    from ...background.admission import Gate
    from ...background.lane import lane_key
    from ...paths import project_of

    plugins = plugins_of(ctx)
    bundle = await bundle_at(bundle_path, plugins)
    session = session_named(bundle, name)
    project, lane = project_of(bundle.base_path), lane_key(bundle.name, name)
    async with opened_inbox(plugins) as store:
        watched = Watched(store, project, lane, Gate(session, SystemClock()), show)
        for declared in declared_in(bundle, session):
            source = await declared.source(project, plugins, store, StoredEvents(store))
            watched.sources.append((declared, source))
        if not watched.sources:
            raise TriggerError(name, "it declares no trigger, and is woken by hand alone: amplifier trigger fire")
        await watched.run()
    return exits.FAILED if watched.failed == len(watched.sources) else exits.OK
