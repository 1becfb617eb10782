"""Run `amplifier bundle update`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError

from ...cli import exits
from ...operations.loading import known_bundles
from ..app import json_option, plugins_of, read_settings_here
from ..completing import complete_bundles
from ..loops import run_async
from ..output import print_json
from ..running.terminal import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.plugins import Plugins

    from ...bundle.updating import Refreshed


@click.command(epilog="Example: amplifier bundle update team")
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundles)
@json_option
@click.pass_context
def update(ctx: click.Context, bundles: tuple[str, ...], as_json: bool) -> None:
    """Fetch the remote parts of each BUNDLE again: its own files, its includes, its background sessions.

    BUNDLE is a file, a folder, a URL, a registered name, or name:path. Default: bundle.md here, and every named bundle.
    A part that cannot be fetched stays as it is; the rest is fetched.
    """
    from ...bundle.updating import refresh_bundle
    from ...paths import find_own_file

    plugins = plugins_of(ctx)
    names = known_bundles(plugins, read_settings_here())
    here = [str(file)] if (file := find_own_file(Path())) is not None else []
    done: dict[Any, Refreshed] = {}
    rows = [row for bundle in bundles or [*here, *sorted(names)] for row in refresh_bundle(bundle, names, done)]
    errors = [row.error for row in rows if row.error is not None] + _save_states(plugins, rows)
    if as_json:
        shown = ("name", "source", "before", "after")
        listed = [
            {name: getattr(row, name) for name in shown} | {"changed": row.has_changed, "error": str(row.error or "")}
            for row in rows
        ]
        print_json("bundle.update/1", listed)
    else:
        for row in rows:
            label = row.name or row.source
            if row.has_changed:
                click.echo(f"{label}: {_short(row.before) or 'nothing'} -> {_short(row.after)}")
            elif row.error is None:
                click.echo(f"{label}: unchanged")
        if not rows:
            click.echo("No remote bundles.", err=True)
    for error in errors:
        tell(f"amplifier: {error}")
    ctx.exit(exits.exit_code(errors[0]) if errors else exits.OK)


def _save_states(plugins: Plugins, rows: Sequence[Refreshed]) -> list[AmplifierError]:
    """Save the new state of changed bundles with a name in the registry; return the errors."""
    from ...bundle.registry import BundleRegistry

    registry = BundleRegistry(plugins=plugins)
    errors: list[AmplifierError] = []
    for row in rows:
        if row.has_changed and row.name in registry.list_registered():
            try:
                run_async(registry.load(row.name))
            except AmplifierError as error:
                errors.append(error)
    registry.save()
    return errors


def _short(version: str) -> str:
    """Return the first 12 characters of a commit; anything else whole."""
    return version[:12] if len(version) == 40 and version.isalnum() else version
