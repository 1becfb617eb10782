"""Run `amplifier trigger fire`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import BundleNotFoundError, SessionConflict, SessionNotFound
from amplifier_core.json_values import to_json

from ...cli import exits
from ..app import bundle_option, choose_bundle, load_bundle_at, plugins_of, project_here, read_settings_here, use_inbox
from ..completing import complete_background_sessions
from ..loops import run_in_loop
from ..processes import list_all_running, wake
from .timing import background_session_named

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ...bundle.model import Bundle


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
    from ...background.firing import fire_by_hand

    try:
        payload = json.loads(data)
        to_json(payload, "data")
    except (TypeError, ValueError, RecursionError) as error:
        raise click.UsageError(f"--data is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise click.UsageError('--data must be a JSON object, such as {"path": "a.py"}')
    plugins, own = plugins_of(ctx), name.rpartition("/")[2]
    async with use_inbox(plugins) as store:
        bundle, project = await _find_bundle(store, plugins, name, bundle_path)
        delivery = await fire_by_hand(store, project, bundle.name, background_session_named(bundle, own), payload)
    runs = wake(project, own)
    if delivery is not None and delivery.state in ("refused", "skipped"):
        click.echo(f"{name}: {delivery.state}: {delivery.reason}", err=True)
        ctx.exit(exits.FAILED)
    click.echo(f"{name}: accepted" + ("" if runs else "; it waits for the next: amplifier up"), err=True)


async def _find_bundle(store: DurableStore, plugins: Plugins, name: str, path: str | None) -> tuple[Bundle, str]:
    """Return the bundle of background session `name` and its folder.

    It is the bundle at `path`, else the one here that declares `name`, else the only one that runs or has run with it.
    Raises `NoSuchBackgroundSession`, and `SessionConflict` for several.
    """
    from ...background.asking import NoSuchBackgroundSession
    from ...background.up import root_id
    from ...paths import project_of

    known: list[str] = []
    try:
        here: str | None = choose_bundle(path, read_settings_here())
    except BundleNotFoundError:
        here = None
    if here is not None:
        bundle = await load_bundle_at(here, plugins, runs=False)
        known = [each.name for each in bundle.background_sessions]
        if path is not None or name in known:
            return bundle, project_of(bundle.base_path)
    queues = [(counted.project, counted.queue) for counted in await store.delivery_counts()]
    queues += [key for key, _, _ in list_all_running()]
    found = sorted({each for each in queues if name in (each[1], each[1].rpartition("/")[2])})
    found = [each for each in found if each[0] == project_here()] or found
    if not found:
        raise NoSuchBackgroundSession(name, [*known, *(queue.rpartition("/")[2] for _, queue in queues)])
    if len(found) > 1:
        listed = ", ".join(f"{queue} in {project}" for project, queue in found)
        raise SessionConflict(name, f"several background sessions have this name: {listed}. Choose a bundle with -b")
    [(project, queue)] = found
    try:
        source = (await store.get(root_id(queue.rpartition("/")[0], project))).bundle_source
    except SessionNotFound:
        source = ""
    if not source:
        raise SessionConflict(name, f"the bundle of {queue} in {project} is unknown. Give it with -b")
    return await load_bundle_at(source, plugins, runs=False), project
