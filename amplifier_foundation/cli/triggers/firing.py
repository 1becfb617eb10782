"""Run `amplifier trigger fire`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import BundleError, BundleNotFoundError
from amplifier_core.json_values import to_json

from ...background.keys import queue_key
from ...cli import exits
from ...operations.firing import Declaration, find_declared, find_running_from
from ...operations.firing import fire as fire_event
from ...operations.running import status_elsewhere, wake
from ..app import (
    bundle_option,
    choose_bundle,
    load_bundle_at,
    person,
    plugins_of,
    project_here,
    read_settings_here,
    use_inbox,
)
from ..completing import complete_background_sessions
from ..loops import run_in_loop

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore


@click.command(epilog='Example: amplifier trigger fire reviewer --data \'{"path": "app.py"}\'')
@click.argument("name", shell_complete=complete_background_sessions)
@bundle_option
@click.option("--data", default="{}", help="A JSON object for the session.")
@click.pass_context
@run_in_loop
async def fire(ctx: click.Context, name: str, bundle_path: str | None, data: str) -> None:
    """Wake the background session NAME by hand, now or at the next `amplifier up`.

    Without --bundle, NAME is one of the bundle.md here, else one that runs or has run anywhere; write BUNDLE/NAME
    when several bundles have one of that name.
    """
    try:
        payload = json.loads(data)
        to_json(payload, "data")
    except (TypeError, ValueError, RecursionError) as error:
        raise click.UsageError(f"--data is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise click.UsageError('--data must be a JSON object, such as {"path": "a.py"}')
    plugins, own = plugins_of(ctx), name.rpartition("/")[2]
    async with use_inbox(plugins) as store:
        declared = await _find_declaration(store, plugins, name, bundle_path)
        delivery = await fire_event(store, plugins, person(), declared, own, payload)
        queue = queue_key(declared.bundle.name, own)
        runs = wake(declared.project, queue) or await status_elsewhere(store, declared.project, queue)
    if delivery is not None and delivery.state in ("refused", "skipped"):
        click.echo(f"{name}: {delivery.state}: {delivery.reason}", err=True)
        ctx.exit(exits.FAILED)
    click.echo(f"{name}: accepted" + ("" if runs else "; it waits for the next: amplifier up"), err=True)


async def _find_declaration(store: DurableStore, plugins: Plugins, name: str, path: str | None) -> Declaration:
    """Return the declaration of background session `name`.

    It is that of the bundle at `path`, else of the one here that declares `name`, else of the only one that runs or has
    run with it. Of a broken bundle here, it is the one that runs from that very file. Raises `NoSuchBackgroundSession`,
    `SessionConflict` for several, and `BundleError` for a broken bundle here that does not run.
    """
    from ...paths import project_of

    known: list[str] = []
    try:
        here: str | None = choose_bundle(path, read_settings_here())
    except BundleNotFoundError:
        here = None
    if here is not None:
        try:
            bundle = await load_bundle_at(here, plugins, runs=False)
        except BundleError:
            if path is None and (running := await find_running_from(here, store, name, project_here())) is not None:
                return running
            raise
        known = [each.name for each in bundle.background_sessions]
        if path is not None or name in known:
            return Declaration(bundle, project_of(bundle.base_path))
    return await find_declared(store, plugins, name, project=project_here(), known=known)
