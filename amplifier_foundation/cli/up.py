"""`amplifier up`: run what bundles declare in the background, until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import exits
from .app import bundle_at, opened_inbox, plugins_of, refuse_what_cannot_run, run_async
from .view import RunView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..background.reloading import Reloading
    from ..bundles.model import Bundle
    from ..up import Up
    from .detaching import Logfile

Result = TypeVar("Result")

GRACE = 10.0
"""Seconds that sessions at work get to finish after the first signal."""
QUIET = 1.0
"""Seconds without anything to do after which `--once` ends."""
TICK = 1.0
"""Seconds between two looks at the figures that are shown, and at the length of the log."""


@click.command()
@click.argument("bundles", nargs=-1, metavar="BUNDLE...")
@click.option("--once", is_flag=True, help="Handle what there is to handle, and end when nothing comes for a second.")
@click.option("--detach", is_flag=True, help="Run in the background; return when everything has started.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would run.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Run in this folder."
)
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, which rotates at 10 MB."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
def up(ctx: click.Context, /, bundles: tuple[str, ...], detach: bool, **options: Any) -> None:
    """Run the background sessions that each BUNDLE (default: bundle.md here) declares.

    Ctrl-C, or SIGTERM, lets sessions at work finish for 10 seconds; twice interrupts them, and the next start goes on
    with them. A bundle that changes is taken up; SIGHUP has them looked at now.
    """
    quiet = options.pop("quiet") or ctx.obj["quiet"]
    if detach:
        ctx.exit(_detach(ctx, bundles, quiet=quiet, **options))
    ctx.exit(run_async(_up(ctx, bundles or ("bundle.md",), quiet=quiet, **options)))


def _detach(
    ctx: click.Context,
    bundles: Sequence[str],
    *,
    once: bool,
    dry_run: bool,
    working_dir: Path | None,
    log: Path | None,
    quiet: bool,
) -> int:
    from .detaching import detached

    if once or dry_run or log:
        raise click.UsageError("--detach goes with neither --once nor --dry-run nor --log")
    flags = [flag for flag in ("--safe-mode", "--debug") if ctx.obj[flag[2:].replace("-", "_")]]
    folder = ["--working-dir", str(working_dir)] if working_dir else []
    return detached(flags, [*folder, "--", *bundles], quiet=quiet)


async def _up(
    ctx: click.Context,
    paths: Sequence[str],
    *,
    once: bool,
    dry_run: bool,
    working_dir: Path | None,
    log: Path | None,
    quiet: bool,
) -> int:
    from .detaching import Logfile

    plugins = plugins_of(ctx)
    bundles = [await bundle_at(path, plugins) for path in paths]
    for bundle in bundles:
        refuse_what_cannot_run(bundle, plugins)
    if dry_run:
        _describe(bundles)
        return exits.OK
    logfile = Logfile(log) if log else None
    with RunView(quiet=quiet, dated=logfile is not None) as view, Stopper() as stopper:
        async with opened_inbox(plugins) as store:
            await _run(bundles, store, plugins, view, stopper, working_dir=working_dir, log=logfile, once=once)
    return stopper.code


async def _run(
    bundles: Sequence[Bundle],
    store: DurableStore,
    plugins: Plugins,
    view: RunView,
    stopper: Stopper,
    *,
    working_dir: Path | None,
    log: Logfile | None,
    once: bool,
) -> None:
    """Run the bundles until a stop is asked for."""
    from ..paths import project_of
    from ..retention import Retention
    from ..service.notifying import Notifier
    from ..settings import read_settings
    from ..up import Control, brought_up

    for bundle in bundles:
        view.expect(bundle, project_of(working_dir or bundle.base_path))
    how = "Ctrl-C" if log is None else "SIGTERM"
    notifier = Notifier(os.environ)
    control = Control(asked_to_stop=stopper.ask, tell=view.note)
    async with AsyncExitStack() as stack:
        running = await stopper.unless_asked(
            stack.enter_async_context(
                brought_up(
                    bundles,
                    store,
                    plugins,
                    working_dir=working_dir,
                    observer=view,
                    control=control,
                    retention=Retention.of(read_settings()),
                )
            )
        )
        if running is None:
            return
        reloading = _reloading(running, plugins, view)
        control.asked_to_reload = reloading.ask
        stopper.on_hangup(reloading.ask)
        async with beside(notifier.pings()):
            with notifier.ready(", ".join(each.bundle.name for each in running)):
                async with beside(reloading.run(), _ticking(view, store, running, log)):
                    view.note(f"Watching {', '.join(each.project for each in running)}. {how} stops.")
                    await (_drained(store, running, stopper) if once else stopper.wait())
            if stopper.asked:
                view.note(f"Stopping: sessions at work may finish; {how} again interrupts them.")
            await stopper.stop_all(running)


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do other work while the block runs, and no longer; an error of the block is raised as it is."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        except Exception as error:  # which the group would wrap
            failure = error
        finally:
            for task in tasks:
                task.cancel()
    if failure is not None:
        raise failure


def _reloading(running: Sequence[Up], plugins: Plugins, view: RunView) -> Reloading:
    """Return what takes up changed bundles: when a file of theirs changes, and when it is asked to."""
    from ..background.reloading import Reloading

    async def load(path: Path) -> Bundle:
        bundle = await bundle_at(str(path), plugins)
        refuse_what_cannot_run(bundle, plugins)
        return bundle

    return Reloading(running, load, view.note)


async def _ticking(view: RunView, store: DurableStore, running: Sequence[Up], log: Logfile | None) -> None:
    """Keep the figures of a table that somebody sees what they are, and the log short, until cancelled."""
    from amplifier_core.errors import StoreUnavailable

    from ..background.lane import lane_key

    while True:
        if log is not None:
            log.rotate()
        if view.is_live and view.changed:
            at_work = {
                (each.project, lane_key(each.bundle.name, row["name"])): row["running"]
                for each in running
                for row in each.manager.get_status().values()
            }
            with suppress(StoreUnavailable):
                view.tally(await store.tallies(), at_work)
        await asyncio.sleep(TICK)


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
    """Turns signals into a stop: the first one gracefully, the second one at once; the third ends the process."""

    def __init__(self) -> None:
        self.code = exits.OK
        self._asked = asyncio.Event()
        self._again = asyncio.Event()
        self._starting: asyncio.Task[Any] | None = None
        self._hung_up: Callable[[], None] = lambda: None
        self._on_a_terminal = sys.stdout.isatty()

    def __enter__(self) -> Stopper:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_signal, exits.INTERRUPTED)
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, exits.TERMINATED)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    @property
    def asked(self) -> bool:
        """Whether it is to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop gracefully, as at another process's wish."""
        self._asked.set()

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Call `call` at SIGHUP."""
        self._hung_up = call

    def _on_hangup(self) -> None:
        if self._on_a_terminal and not sys.stdout.isatty():  # it was closed, and nobody can stop it there any more
            self._on_signal(exits.TERMINATED)
        else:
            self._hung_up()

    def _on_signal(self, code: int) -> None:
        if self._again.is_set():  # what hangs cannot be waited for; all that was accepted is in the store
            os._exit(code)
        if self._asked.is_set():
            self._again.set()
        self.code = code
        self._asked.set()
        if self._starting is not None:
            self._starting.cancel()

    async def unless_asked(self, start: Awaitable[Result]) -> Result | None:
        """Return what `start` does; None when a signal comes before that, which ends it."""
        self._starting = asyncio.current_task()
        try:
            return await start
        except asyncio.CancelledError:
            if self._starting is None or not self.asked:
                raise
            self._starting.uncancel()
            return None
        finally:
            self._starting = None

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._asked.wait()

    async def stop_all(self, running: Sequence[Up]) -> None:
        """Stop the background sessions within the grace, or at once at the second signal."""
        async with asyncio.TaskGroup() as group:
            impatient = group.create_task(self._interrupt(running))
            await asyncio.gather(*(each.manager.stop_all(grace=GRACE) for each in running))
            impatient.cancel()

    async def _interrupt(self, running: Sequence[Up]) -> None:
        await self._again.wait()
        for each in running:
            each.manager.interrupt()
