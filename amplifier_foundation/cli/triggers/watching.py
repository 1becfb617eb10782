"""Run `amplifier trigger watch`: show the events of a background session's triggers as they come."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import field
from typing import TYPE_CHECKING

import click

from amplifier_core.clock import SystemClock
from amplifier_core.conditions import facts_of
from amplifier_core.errors import TriggerError
from amplifier_core.frozen import frozen, slotted

from ...cli import exits
from ...documents.json_text import dump_json
from ...operations.firing import background_session_named
from ...operations.timing import declared_in
from ..app import bundle_option, load_bundle_at, plugins_of, use_inbox
from ..completing import complete_background_sessions
from ..loops import run_in_loop
from ..output import console
from ..own_stdout import divert_stdout, own_stdout
from ..running.terminal import tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent, TriggerSource

    from ...background.admission import Gate
    from ...operations.timing import Declared

POLL = 1.0
"""Seconds between two looks at the event log: other processes write to it."""


@click.command(epilog="Example: amplifier trigger watch reviewer")
@click.argument("name", shell_complete=complete_background_sessions)
@bundle_option
@click.option("-n", "--limit", type=click.IntRange(1, 10**9), help="End after so many events.")
@click.option("--jsonl", is_flag=True, help="Print each event as a line of JSON, with an `event` for `trigger test`.")
@click.pass_context
@run_in_loop
async def watch(ctx: click.Context, name: str, bundle_path: str | None, limit: int | None, jsonl: bool) -> None:
    """Show the events for the background session NAME as they come, until Ctrl-C; run and store nothing.

    It begins at the last event of `amplifier up`. Callers of a webhook get an answer, and their data is not kept.
    """
    from ...background.admission import Gate
    from ...background.keys import queue_key
    from ...paths import project_of

    plugins = plugins_of(ctx)
    bundle = await load_bundle_at(bundle_path, plugins)
    session = background_session_named(bundle, name)
    project, queue = project_of(bundle.base_path), queue_key(bundle.name, name)
    async with use_inbox(plugins) as store:
        gate = Gate(session, SystemClock())
        watched = Watched(store, project, queue, gate, Shown(limit, jsonl=jsonl))
        for declared in declared_in(bundle, session):
            source = await declared.source(project, plugins, store, StoredEvents(store))
            watched.sources.append((declared, source))
        if not watched.sources:
            raise TriggerError(name, "it has no trigger: only amplifier trigger fire wakes it")
        with divert_stdout():
            await watched.run()
    ctx.exit(exits.FAILED if watched.failed == len(watched.sources) else exits.OK)


class Shown:
    """Prints events up to a limit."""

    def __init__(self, limit: int | None, *, jsonl: bool) -> None:
        self._left = limit
        self._jsonl = jsonl

    @property
    def all(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    def __call__(self, trigger: str, event: TriggerEvent, refused: str | None) -> None:
        """Print one event."""
        if self._left is not None:
            self._left -= 1
        if self._jsonl:
            told = {"trigger": trigger, "event": facts_of(event), "refused": refused}
            click.echo(dump_json(told), file=own_stdout())
        else:
            self._print(trigger, event, refused)

    def _print(self, trigger: str, event: TriggerEvent, refused: str | None) -> None:
        from rich.text import Text

        from ...sessions.lineage import describe_event

        mark, style = ("●", "blue") if refused is None else ("✗", "yellow")
        line = Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", (mark, style), " ", (trigger, "bold"))
        line.append(f"  {describe_event(event)}")
        if refused is not None:
            line.append(f"  would be refused: {refused}", style)
        line.append(f"  {json.dumps(dict(event.data), ensure_ascii=False, default=str)}", "dim")
        console().print(line)


@frozen
class StoredEvents:
    """The event log of the store as an `EventSource`, for a process without sessions."""

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


@slotted
class Watched:
    """The triggers of one background session, each in a task of its own."""

    store: DurableStore
    project: str
    queue: str
    gate: Gate
    show: Shown
    sources: list[tuple[Declared, TriggerSource]] = field(default_factory=list)
    failed: int = 0

    async def run(self) -> None:
        """Watch until every trigger has ended or the limit is reached."""
        async with asyncio.TaskGroup() as group:
            for declared, source in self.sources:
                group.create_task(self._watch(declared, source))

    async def _watch(self, declared: Declared, source: TriggerSource) -> None:
        from ...background.tasks import first_cause
        from ...sessions.lock import running_owner

        try:
            await self._events(declared, source)
        except Exception as error:
            self.failed += 1
            cause, owner = first_cause(error), running_owner(self.project)
            text = str(cause) if isinstance(cause, TriggerError) else f"{declared.config.module}: {cause}"
            if owner is not None:  # a port can be taken once
                pid = owner.get("pid", "?")
                text += f" (process {pid} of amplifier up runs the same triggers; stop it with: amplifier stop --all)"
            tell(f"amplifier: {text}")

    async def _events(self, declared: Declared, source: TriggerSource) -> None:
        from ...background.trigger_making import open_stream, stop_trigger

        async with asyncio.TaskGroup() as group:
            announcing = group.create_task(self._announce(declared, source))
            async with open_stream(source, declared.config.module) as stream:
                try:
                    async for event in stream:
                        if announcing.cancel():  # an event can be here before its trigger's `ready` has returned
                            await asyncio.wait({announcing})
                            self._say_armed(declared)
                        await self._show(declared, event)
                        if self.show.all:
                            break
                finally:
                    announcing.cancel()
                    await stop_trigger(source, declared.key)
        for other, each in self.sources if self.show.all else ():
            await stop_trigger(each, other.key)

    async def _announce(self, declared: Declared, source: TriggerSource) -> None:
        from ...background.trigger_making import call_method

        await (call_method(source, "ready") if hasattr(source, "ready") else asyncio.sleep(0))
        self._say_armed(declared)

    def _say_armed(self, declared: Declared) -> None:
        click.echo(f"{declared.key.rpartition('/')[2]} is armed; nothing runs, nothing is stored", err=True)

    async def _show(self, declared: Declared, event: TriggerEvent) -> None:
        if not self.show.all:
            refused = await self.gate.evaluate(self.store, (self.project, self.queue), declared.config, event)
            self.show(declared.key.rpartition("/")[2], event, refused)
