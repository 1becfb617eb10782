"""Run the background sessions of a bundle beside its conversation, and wait for their work after a single turn."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.storage import DurableStore
from amplifier_core.utils.secrets import redact_text

from ...cli import exits
from ...documents.safe_text import plain, shell_word
from ...paths import project_of
from ...security import read_policy
from ..output import console
from .showing import Display
from .terminal import tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import click

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore

    from ...background.beside import BesideConversation
    from ...background.state import Activity
    from ...spawning.conversation import Conversation
    from ..view import RunView
    from .approving import Approvals
    from .choosing import Chosen, Wanted
    from .stopping import Presses

WATCH = "run-watch"
"""The plugin of this program that hears of the sessions below a conversation."""
GRACE = 10.0
"""Seconds for running sessions to finish after the first Ctrl-C."""
PATIENCE = 2.0
"""Seconds until the panel has something to show, or has nothing."""
LINES, WIDEST = 50, 200
"""Lines of the panel that are printed, and columns of each, at most."""
KEPT = 1000
"""Activities of the turn that are shown after it, at most."""


class Workers:
    """The background sessions beside one conversation, for its orchestrator to start."""

    def __init__(self, bundle: str | None) -> None:
        """`bundle` is the bundle of the command line."""
        self.host: BesideConversation | None = None
        self._up = "amplifier up" if bundle is None else f"amplifier up -b {shell_word(bundle)}"
        self._view: RunView | None = None
        self._before: list[Activity] = []

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities of the session: `background.host`, for a bundle with background sessions."""
        return {"background.host": self.host} if self.host is not None else {}

    def observe(self, activity: Activity) -> None:
        """Show an activity, or keep it until there is a view."""
        if self._view is not None:
            self._view(activity)
        elif len(self._before) < KEPT:
            self._before.append(activity)

    async def finish(self, session: AmplifierSession, presses: Presses, *, quiet: bool) -> int:
        """Wait until their work is done, and show it; return the exit code: 1 if something was given up, or waits.

        The panel of the session, if it has one, is printed at the end. Ctrl-C stops the workers; the next start goes on
        with their work.
        """
        running = self.host.running if self.host is not None else None
        if self.host is None or running is None:
            return exits.OK
        from ..up import keep_counts, read_end
        from ..view import RunView

        pressed = asyncio.Event()
        with RunView(console(err=True), quiet=quiet) as self._view, presses.to(pressed.set):
            for activity in self._before:
                self._view(activity)
            async with asyncio.TaskGroup() as group:
                counting = group.create_task(keep_counts(self._view, self.host.store, [running]))
                draining = group.create_task(self.host.drain())
                stopping = group.create_task(pressed.wait())
                await asyncio.wait({draining, stopping}, return_when=asyncio.FIRST_COMPLETED)
                is_done = draining.done()
                for each in (counting, draining, stopping):
                    each.cancel()
        self._view = None
        self._before.clear()
        if not quiet:
            await _print_panel(session)
        if is_done:
            return await read_end([running], self.host.store, draining.result())
        self.host.grace = GRACE
        tell(f"amplifier: stopping the workers; their work goes on with: {self._up}")
        return exits.INTERRUPTED

    async def leave(self) -> None:
        """Say what becomes of unfinished work at the end of a conversation."""
        running = self.host.running if self.host is not None else None
        if running is not None and not await running.manager.is_idle():
            tell(f"The workers stop here; their work goes on with the next run, or with: {self._up}")


@asynccontextmanager
async def _offer_background(
    chosen: Chosen, store: SessionStore, plugins: Plugins, wanted: Wanted
) -> AsyncIterator[Workers]:
    """Offer the background sessions of a bundle to its conversation while the block runs; then stop them.

    Their project is that of the conversation. The watch of the sessions below the conversation is none of theirs.
    """
    workers = Workers(wanted.bundle)
    if not chosen.bundle.background_sessions or not isinstance(store, DurableStore):
        yield workers
        return
    from ...background.beside import BesideConversation

    project = chosen.record.project if chosen.record is not None else project_of(wanted.working_dir)
    rest = plugins.without(WATCH)
    async with BesideConversation(chosen.bundle, store, rest, project, workers.observe) as workers.host:
        yield workers


@asynccontextmanager
async def open_chosen(
    ctx: click.Context,
    chosen: Chosen,
    store: SessionStore,
    plugins: Plugins,
    wanted: Wanted,
    approvals: Approvals,
    attach: Callable[[AmplifierSession], None] | None = None,
) -> AsyncIterator[tuple[Conversation, Workers]]:
    """Open the conversation that a person chose, with the background sessions of its bundle on offer beside it.

    `attach` is that of `open_conversation`.
    """
    from ...spawning.conversation import open_conversation

    async with (
        _offer_background(chosen, store, plugins, wanted) as workers,
        open_conversation(
            chosen.bundle,
            store,
            plugins,
            resume=chosen.record,
            working_dir=wanted.working_dir,
            name=wanted.name,
            approval_system=approvals,
            permissions=read_policy(wanted.working_dir),
            display_system=Display(quiet=bool(ctx.obj["quiet"])),
            attach=attach,
            capabilities=workers.capabilities,
        ) as conversation,
    ):
        yield conversation, workers


async def _print_panel(session: AmplifierSession) -> None:
    """Print what the session shows beside a conversation, as it is now."""
    panel = session.coordinator.get_capability("conversation.panel")
    if panel is None:
        return
    news = asyncio.Event()
    unsubscribe = panel.subscribe(news.set)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await news.wait()
    unsubscribe()
    from rich.text import Text

    out = console(err=True)
    for line in panel.render(min(out.width, WIDEST), LINES):
        out.print(Text(redact_text(plain(line.plain))))
