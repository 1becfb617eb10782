"""`amplifier bundle update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError

from .. import exits
from ..app import json_option, plugins_of, run_async
from ..output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...bundles.registry import BundleRegistry


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@click.pass_context
def update(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Fetch the bundles of these names anew, or all that have a name and come from elsewhere.

    One that cannot be fetched stays as it is; the others are fetched all the same.
    """
    from ...bundles.registry import BundleRegistry

    registry = BundleRegistry(plugins=plugins_of(ctx))
    rows, code = run_async(_updated(registry, names or _from_elsewhere(registry)))
    if as_json:
        print_json("bundle.update/1", rows)
    else:
        _print(rows)
    ctx.exit(code)


def _from_elsewhere(registry: BundleRegistry) -> list[str]:
    from ...bundles.paths import is_remote

    return [name for name, place in sorted(registry.names().items()) if is_remote(place)]


async def _updated(registry: BundleRegistry, names: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Fetch, and return what came of it with the code of the first that failed."""
    rows: list[dict[str, Any]] = []
    code = exits.OK
    for name in names:
        row: dict[str, Any] = {"name": name, "changed": False, "before": "", "after": "", "error": ""}
        rows.append(row)
        try:
            info = registry.refresh(name)
            if info is not None:
                row |= {"changed": True, "before": info.current, "after": info.available}
                await registry.load(name)
        except AmplifierError as error:
            row["error"] = str(error)
            code = code or exits.exit_code(error)
    registry.save()
    return rows, code


def _print(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        if row["error"]:
            click.echo(f"amplifier: {row['name']}: {row['error']}", err=True)
        elif row["changed"]:
            click.echo(f"{row['name']}: {_short(row['before']) or 'nothing'} -> {_short(row['after'])}")
        else:
            click.echo(f"{row['name']}: as it was")
    if not rows:
        click.echo("No bundle that has a name comes from elsewhere.", err=True)


def _short(version: str) -> str:
    """Return a commit as git shows it, anything else whole."""
    return version[:12] if len(version) == 40 and version.isalnum() else version
