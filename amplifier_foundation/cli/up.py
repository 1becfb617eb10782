"""`amplifier up`: run what bundles declare in the background, until told to stop."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import exits
from .app import bundle_at, opened_inbox, plugins_of, refuse_what_cannot_run, run_async
from .view import RunView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..bundles.model import Bundle
    from ..up import Control, Up

GRACE = 10.0
"""Seconds that sessions at work get to finish after the first Ctrl-C."""
QUIET = 1.0
"""Seconds without anything to do after which `--once` ends."""


@click.command()
@click.argument("bundles", nargs=-1, metavar="BUNDLE...")
@click.option("--once", is_flag=True, help="Handle what there is to handle, and end when nothing comes for a second.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would run.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Run in this folder."
)
@click.pass_context
def up(ctx: click.Context, bundles: tuple[str, ...], once: bool, dry_run: bool, working_dir: Path | None) -> None:
    """Run the background sessions that each BUNDLE (default: bundle.md here) declares.

    Ctrl-C lets sessions at work finish; twice interrupts them, and the next start goes on with them.
    """
    ctx.exit(run_async(_up(ctx, bundles or ("bundle.md",), once=once, dry_run=dry_run, working_dir=working_dir)))


async def _up(ctx: click.Context, paths: Sequence[str], *, once: bool, dry_run: bool, working_dir: Path | None) -> int:
    from ..up import Control, brought_up

    plugins = plugins_of(ctx)
    bundles = [await bundle_at(path, plugins) for path in paths]
    for bundle in bundles:
        refuse_what_cannot_run(bundle, plugins)
    if dry_run:
        _describe(bundles)
        return exits.OK
    with RunView(quiet=ctx.obj["quiet"]) as view, Stopper() as stopper:
        control = Control(asked_to_stop=stopper.ask)
        async with (
            opened_inbox(plugins) as store,
            brought_up(bundles, store, plugins, working_dir=working_dir, observer=view, control=control) as running,
        ):
            view.note(f"Watching {', '.join(each.project for each in running)}. Ctrl-C stops.")
            async with _reloading(running, control, plugins, view, stopper):
                await (_drained(store, running, stopper) if once else stopper.wait())
            if stopper.asked:
                view.note("Stopping: sessions at work may finish; Ctrl-C again interrupts them.")
            await stopper.stop_all(running)
    return stopper.code


@asynccontextmanager
async def _reloading(
    running: Sequence[Up], control: Control, plugins: Plugins, view: RunView, stopper: Stopper
) -> AsyncIterator[None]:
    """Take up changed bundles while the block runs: when a file of theirs changes, and at SIGHUP."""
    from ..background.reloading import Reloading

    async def load(path: Path) -> Bundle:
        bundle = await bundle_at(str(path), plugins)
        refuse_what_cannot_run(bundle, plugins)
        return bundle

    reloading = Reloading(running, load, view.note)
    control.asked_to_reload = reloading.ask
    stopper.on_hangup(reloading.ask)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reloading.run())
        try:
            yield
        finally:
            task.cancel()


def _describe(bundles: Sequence[Bundle]) -> None:
    for bundle in bundles:
        for config in bundle.background_sessions:
            triggers = (
                ", ".join(trigger.module for trigger in config.triggers) or "nothing but `amplifier trigger fire`"
            )
            click.echo(f"{bundle.name}/{config.name}: pool of {config.pool_size}, woken by {triggers}")


async def _drained(store: DurableStore, running: Sequence[Up], stopper: Stopper) -> None:
    """Return when nothing was due or at work in any of the projects for a while, or a stop is asked for."""
    projects = {each.project for each in running}
    quiet_since = time.monotonic()
    while not stopper.asked and time.monotonic() - quiet_since < QUIET:
        await asyncio.sleep(0.05)
        if [await _busy(store, project) for project in projects].count(True):
            quiet_since = time.monotonic()


async def _busy(store: DurableStore, project: str) -> bool:
    for state in ("pending", "claimed"):
        if await store.deliveries(project=project, state=state, limit=1):
            return True
    return False


class Stopper:
    """Turns signals into a stop: the first one gracefully, the second one at once."""

    def __init__(self) -> None:
        self.code = exits.OK
        self._asked = asyncio.Event()
        self._again = asyncio.Event()

    def __enter__(self) -> Stopper:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_signal, exits.INTERRUPTED)
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, exits.TERMINATED)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGHUP)

    @property
    def asked(self) -> bool:
        """Whether it is to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop gracefully, as at another process's wish."""
        self._asked.set()

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Call `call` at SIGHUP."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, call)

    def _on_signal(self, code: int) -> None:
        if self._asked.is_set():
            self._again.set()
        self.code = code
        self._asked.set()

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._asked.wait()

    async def stop_all(self, running: Sequence[Up]) -> None:
        """Stop the background sessions within the grace, or at once at the second signal."""
        async with asyncio.TaskGroup() as group:
            impatient = group.create_task(self._interrupt(running))
            for each in running:
                await each.manager.stop_all(grace=GRACE)
            impatient.cancel()

    async def _interrupt(self, running: Sequence[Up]) -> None:
        await self._again.wait()
        for each in running:
            each.manager.interrupt()
