"""Run `amplifier up`: the background sessions of bundles, until a signal or `amplifier stop`."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..background.later import importing_for_events
from ..background.tasks import keep_beside
from ..cli import exits
from .app import (
    load_bundle_at,
    plugins_of,
    preload_providers,
    read_settings_here,
    require_runnable,
    trust_option,
    use_inbox,
)
from .completing import complete_bundles, complete_servers
from .loops import end_start, run_async
from .servers import make_server_host
from .signals import Stopper
from .streams import leave_out_unread
from .view import RunView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..background.servers import ServerHost
    from ..background.state import Activity
    from ..background.up import Control, Up
    from ..background.working_folder import WorkingFolder
    from ..bundle.model import Bundle
    from .detaching import Logfile

VERBS = {"up": "Watching", "worker": "Working for"}
"""What a process does with the folders of its bundles, once all triggers are armed."""
TICK = 1.0
"""Seconds between two updates of the live table, and checks of the log's length."""


@click.command(epilog="Example: amplifier up bundle.md --detach")
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundles)
@click.option("-b", "--bundle", "more", multiple=True, metavar="BUNDLE", help="Another way to name a BUNDLE.")
@click.option("--once", is_flag=True, help="Handle the present events, and end: with 1 if one is given up or waits.")
@click.option("--detach", is_flag=True, help="Run in the background; return after the start.")
@click.option("--dry-run", is_flag=True, help="Check everything and list the background sessions.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Run in this folder."
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file; it rotates at 10 MB.")
@click.option(
    "--serve",
    "servers",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_servers,
    help="Run this server of a package beside; repeatable.",
)
@trust_option
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def up(
    ctx: click.Context, /, bundles: tuple[str, ...], more: tuple[str, ...], detach: bool, trusts: bool, **options: Any
) -> None:
    """Run the background sessions of each BUNDLE (default: bundle.md here).

    Ctrl-C or SIGTERM gives running sessions 8 seconds to finish; twice interrupts them, and the next start continues
    them. Changes of a bundle are applied while it runs; SIGHUP checks for them now.
    """
    if trusts and options["dry_run"]:
        raise click.UsageError("--dry-run trusts nothing: leave out --trust, or use: amplifier trust")
    bundles, quiet = (*bundles, *more), options.pop("quiet") or ctx.obj["quiet"]
    if not detach:
        ctx.exit(run_async(bring_up(ctx, bundles or (None,), quiet=quiet, trusts=trusts, **options)))
    from ..security.trust import is_checked
    from . import detaching

    if options["once"] or options["dry_run"] or options["log"]:
        raise click.UsageError("--detach excludes --once, --dry-run and --log")
    if is_checked():
        run_async(_load(ctx, bundles or (None,), trusts=trusts))  # the new process has nobody to ask
    flags = [flag for flag in ("--safe-mode", "--debug") if ctx.obj[flag[2:].replace("-", "_")]]
    folder = ["--working-dir", str(options["working_dir"])] if options["working_dir"] else []
    serving = [f"--serve={name}" for name in options["servers"]]
    ctx.exit(detaching.detach(flags, [*folder, *serving, "--", *bundles], quiet=quiet))


async def bring_up(
    ctx: click.Context,
    paths: Sequence[str | None],
    *,
    role: Literal["up", "worker"] = "up",
    once: bool,
    dry_run: bool,
    working_dir: Path | None,
    log: Path | None,
    quiet: bool,
    trusts: bool,
    servers: Sequence[str] = (),
) -> int:
    from amplifier_core.clock import SystemClock

    from ..background.freezing import ending_when_frozen
    from ..background.notifications import Notifications
    from ..background.up import Control
    from .detaching import Logfile

    for path in paths:
        preload_providers(path)
    plugins, bundles = await _load(ctx, paths, trusts=trusts, runs=not dry_run, quiet=quiet)
    if dry_run:
        by_hand = "amplifier trigger fire, only"
        for bundle in bundles:
            for config in bundle.background_sessions:
                triggers = ", ".join(trigger.module for trigger in config.triggers) or by_hand
                click.echo(f"{bundle.name}/{config.name}: pool_size {config.pool_size}, woken by {triggers}")
        return exits.OK
    logfile = Logfile(log) if log else None
    if not once:  # an end of its own may wait for a reader
        leave_out_unread()
    notifications = Notifications(read_settings_here().get("notify") or [], SystemClock())
    with RunView(quiet=quiet, dated=logfile is not None) as view, Stopper() as stopper, ending_when_frozen():

        def observe(activity: Activity) -> None:
            notifications.observe(activity)
            view(activity)

        async with use_inbox(plugins) as store, notifications.telling():
            parts = (bundles, store, plugins, view, stopper, observe, role)
            control = Control(asked_to_stop=stopper.ask, tell=view.note, lost=stopper.fail)
            host = make_server_host(servers, store, plugins, view, control) if role == "up" else None
            async with AsyncExitStack() as stack:
                if host is None or await stopper.unless_asked(stack.enter_async_context(host.run_first())) is not None:
                    await _run(*parts, control, host, working_dir=working_dir, log=logfile, once=once)
    if stopper.failure is not None:
        raise stopper.failure
    return stopper.code


async def _load(
    ctx: click.Context, paths: Sequence[str | None], *, trusts: bool, runs: bool = True, quiet: bool = False
) -> tuple[Plugins, list[Bundle]]:
    """Return the plugins and the bundles, checked, and trusted if they are to run.

    What lets no session get an answer is told, and without `runs` every warning.
    """
    from .trusting import Asking

    plugins = plugins_of(ctx)
    asking = Asking(plugins, trusts)
    bundles = [await load_bundle_at(path, plugins, asking=asking, runs=runs) for path in paths]
    for bundle in bundles:
        for problem in require_runnable(bundle, plugins, runs=True):
            if not quiet and (problem.code == "AMP115" or not runs):
                click.echo(str(problem), err=True)
    return plugins, bundles


async def _run(
    bundles: Sequence[Bundle],
    store: DurableStore,
    plugins: Plugins,
    view: RunView,
    stopper: Stopper,
    observe: Callable[[Activity], None],
    role: Literal["up", "worker"],
    control: Control,
    host: ServerHost | None,
    *,
    working_dir: Path | None,
    log: Logfile | None,
    once: bool,
) -> None:
    """Run the bundles until a stop is requested."""
    from ..background.reloading import Reloading
    from ..background.retention import retention_in
    from ..background.service.notifying import Notifier
    from ..background.up import home_of, run_background
    from ..background.working_folder import WorkingFolder
    from ..settings import read_settings

    folder, how = WorkingFolder(), "Ctrl-C" if log is None else "SIGTERM"
    for bundle in bundles:
        view.expect(bundle, home_of(bundle, plugins, working_dir))
    notifier = Notifier(os.environ)
    async with AsyncExitStack() as stack:
        background = run_background(
            *(bundles, store, plugins),
            working_dir=working_dir,
            observer=observe,
            session_observers=[folder.observe],
            control=control,
            retention=retention_in,
            transports=read_settings().get("transports") if role == "up" else (),
            role=role,
        )
        running = await stopper.unless_asked(stack.enter_async_context(background))
        if running is None:
            return
        end_start()
        if host is not None:
            await stack.enter_async_context(host.run_later())
        reloading = Reloading(running, store, partial(_load_again, plugins=plugins, folder=folder), view.note)
        control.asked_to_reload = reloading.ask
        stopper.on_hangup(reloading.ask)
        counts = partial(keep_counts, view, store, running, log)
        async with keep_beside(notifier.pings, "signs of life"), keep_beside(folder.keep, "working folder"):
            with notifier.ready(", ".join(each.bundle.name for each in running)):
                async with keep_beside(reloading.run, "reloading", control.report), keep_beside(counts, "counts"):
                    view.note(f"{VERBS[role]} {', '.join(each.project for each in running)}. {how} stops.")
                    await reloading.tell_undeclared(running)
                    async with importing_for_events(), hearing_keys(view, running, store, stopper):
                        await (_drain(running, store, stopper) if once else stopper.wait())
            if stopper.is_asked:
                view.note(f"Stopping: running sessions may finish; {how} again interrupts them.")
            await stopper.stop_all(running)


async def _load_again(path: Path, *, plugins: Plugins, folder: WorkingFolder) -> Bundle:
    """Load a changed bundle, with the paths of its folder as they are now."""
    bundle = await load_bundle_at(str(path), plugins, folder.follow())
    require_runnable(bundle, plugins, runs=True)
    return bundle


@asynccontextmanager
async def hearing_keys(
    view: RunView, running: Sequence[Up], store: DurableStore, stopper: Stopper
) -> AsyncIterator[None]:
    """Act on the keys of a terminal that shows the live table while the block runs."""
    if not view.is_live:
        yield
        return
    from .up_keys import HINT, UpKeys, reading_keys

    with reading_keys() as keys:
        if keys is None:
            yield
            return
        view.hint = HINT
        async with keep_beside(partial(UpKeys(view, running, store, stopper.ask).handle, keys), "keys"):
            yield
        view.hint = ""


async def keep_counts(view: RunView, store: DurableStore, running: Sequence[Up], log: Logfile | None = None) -> None:
    """Update the counts of the live table and rotate the log, until cancelled."""
    from amplifier_core.errors import StoreUnavailable

    from ..background.approvals import read_all
    from ..background.keys import queue_key

    while True:
        if log is not None:
            log.rotate()
        if view.is_live:
            view.tick()
        if view.is_live and view.changed:
            at_work = {
                (each.project, queue_key(each.bundle.name, row["name"])): row["running"]
                for each in running
                for row in each.manager.get_status().values()
            }
            with suppress(StoreUnavailable):
                view.show_counts(await store.delivery_counts(), at_work, await read_all(store))
        await asyncio.sleep(TICK)


async def _drain(running: Sequence[Up], store: DurableStore, stopper: Stopper) -> None:
    """Return when all events are handled, or a stop is requested; the exit code is that of `read_end`."""
    from ..background.draining import drain

    async with asyncio.TaskGroup() as group:
        draining = group.create_task(drain([each.manager for each in running]))
        asked = group.create_task(stopper.wait())
        await asyncio.wait({draining, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        draining.cancel()
    if not draining.cancelled():
        stopper.code = await read_end(running, store, draining.result())


async def read_end(running: Sequence[Up], store: DurableStore, is_well: bool) -> int:
    """Tell how many events are postponed, or wait for an answer; return the exit code of a drain: 1 with one, or
    unless all is well.

    Raises `StoreError`.
    """
    from ..background.approvals import read_all
    from ..operations.overview import read_postponed
    from .output import timestamp
    from .running.terminal import tell

    rows = [(each.project, row) for each in running for row in each.manager.get_status().values()]
    at_work = [(project, row["queue"]) for project, row in rows if row["status"] not in ("paused", "stopped")]
    found = [row for place in at_work if (row := await read_postponed(store, *place))["postponed"]]
    if found:
        count, untils = sum(row["postponed"] for row in found), [row["postponed_until"] for row in found]
        until = "" if None in untils else f" until {timestamp(min(untils))},"
        text = "1 event waits" if count == 1 else f"{count} events wait{', the first one' if until else ''}"
        tell(f"amplifier: {text}{until} for the next start. See: amplifier ps")
    open_questions = [each for each in await read_all(store) if each.state == "pending"]
    if asking := {each.delivery_id for each in open_questions if (each.project, each.queue) in at_work}:
        text = "1 event waits" if len(asking) == 1 else f"{len(asking)} events wait"
        tell(f"amplifier: {text} for your answer. See: amplifier approvals list")
    return exits.FAILED if found or asking or not is_well else exits.OK
