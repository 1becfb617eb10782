"""`amplifier bundle update`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError

from .. import exits
from ..app import json_option, known_bundles, plugins_of, run_async, settings_here
from ..output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.plugins import Plugins

    from ...bundles.updating import Refreshed


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@json_option
@click.pass_context
def update(ctx: click.Context, bundles: tuple[str, ...], as_json: bool) -> None:
    """Fetch anew what comes from elsewhere of each BUNDLE, of what it includes, and of what it runs in the background.

    BUNDLE is what `validate` takes; default: bundle.md here, and every bundle that has a name. What cannot be fetched
    stays as it is; the rest is fetched all the same.
    """
    plugins = plugins_of(ctx)
    names = known_bundles(plugins, settings_here())
    rows = _refreshed(bundles or [*_here(), *sorted(names)], names)
    errors = [row.error for row in rows if row.error is not None] + _remembered(plugins, rows)
    if as_json:
        print_json("bundle.update/1", [_as_json(row) for row in rows])
    else:
        _print(rows)
    for error in errors:
        click.echo(f"amplifier: {error}", err=True)
    ctx.exit(exits.exit_code(errors[0]) if errors else exits.OK)


def _here() -> list[str]:
    return ["bundle.md"] if Path("bundle.md").is_file() else []


def _refreshed(bundles: Iterable[str], names: dict[str, str]) -> list[Refreshed]:
    from ...bundles.updating import refresh_bundle

    done: dict[Any, Refreshed] = {}
    return [row for bundle in bundles for row in refresh_bundle(bundle, names, done)]


def _remembered(plugins: Plugins, rows: Sequence[Refreshed]) -> list[AmplifierError]:
    """Note in the registry what the bundles are now that have a name and changed; return what keeps them from it."""
    from ...bundles.registry import BundleRegistry

    registry = BundleRegistry(plugins=plugins)
    errors: list[AmplifierError] = []
    for row in rows:
        if row.changed and row.name in registry.list_registered():
            try:
                run_async(registry.load(row.name))
            except AmplifierError as error:
                errors.append(error)
    registry.save()
    return errors


def _as_json(row: Refreshed) -> dict[str, Any]:
    about = {"name": row.name, "source": row.source, "changed": row.changed, "before": row.before, "after": row.after}
    return {**about, "error": "" if row.error is None else str(row.error)}


def _print(rows: Sequence[Refreshed]) -> None:
    for row in rows:
        label = row.name or row.source
        if row.changed:
            click.echo(f"{label}: {_short(row.before) or 'nothing'} -> {_short(row.after)}")
        elif row.error is None:
            click.echo(f"{label}: as it was")
    if not rows:
        click.echo("Nothing here comes from elsewhere.", err=True)


def _short(version: str) -> str:
    """Return a commit as git shows it, anything else whole."""
    return version[:12] if len(version) == 40 and version.isalnum() else version
