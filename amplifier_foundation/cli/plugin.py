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
    plugins, modules = plugins_of(ctx), _modules()
    if as_json:
        print_json("plugin.list/1", {"plugins": [asdict(row) for row in plugins.rows], "modules": modules})
        return
    rows = [[row.name, "plugin", row.dist, row.version, row.status, row.error] for row in plugins.rows]
    rows += [[each["name"], "module", each["dist"], each["version"], "installed", ""] for each in modules]
    print_table(("NAME", "DOOR", "FROM", "VERSION", "STATUS", "CAUSE"), sorted(rows), empty="No plugins.")


def _modules() -> list[dict[str, str]]:
    from importlib.metadata import entry_points

    from amplifier_core.loader import GROUP

    return [
        {
            "name": entry.name,
            "dist": entry.dist.name if entry.dist else "?",
            "version": entry.dist.version if entry.dist else "",
            "target": entry.value,
        }
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    ]
