"""`amplifier plugin`: what is installed, and whether it works."""

from __future__ import annotations

from dataclasses import asdict

import click

from .app import json_option, plugins_of
from .output import print_json, print_table


@click.group()
def plugin() -> None:
    """See what is installed."""


@plugin.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the installed plugins and modules; one that does not load says why."""
    from amplifier_core.loader import installed_modules

    plugins, modules = plugins_of(ctx), installed_modules()
    if as_json:
        data = {"plugins": [asdict(row) for row in plugins.rows], "modules": [each.model_dump() for each in modules]}
        print_json("plugin.list/1", data)
        return
    rows = [(row.name, "plugin", row.dist, row.version, row.status, row.error) for row in plugins.rows]
    rows += [(each.id, each.type, each.dist, each.version, "installed", "") for each in modules]
    print_table(("NAME", "KIND", "FROM", "VERSION", "STATUS", "CAUSE"), sorted(rows), empty="No plugins.")
