"""Run `amplifier plugin list`: show installed plugins and modules, and their names."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..app import json_option, plugins_of
from ..output import print_json, print_table


@click.command("list", epilog="Example: amplifier plugin list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the installed plugins and modules, with the names they offer; CAUSE tells why one does not load."""
    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.loader import GROUP

    plugins, modules = plugins_of(ctx), []
    for entry in find_entry_points(GROUP):
        dist, version = entry.dist
        modules.append({"name": entry.name, "dist": dist, "version": version, "target": entry.value})
    if as_json:
        print_json("plugin.list/1", {"plugins": [asdict(row) for row in plugins.rows], "modules": modules})
        return
    rows = [
        [row.name, "plugin", ", ".join(row.offers) or "-", row.dist, row.version, row.status, row.error]
        for row in plugins.rows
    ]
    rows += [[each["name"], "module", each["name"], each["dist"], each["version"], "installed", ""] for each in modules]
    headings = ("NAME", "DOOR", "OFFERS", "FROM", "VERSION", "STATUS", "CAUSE")
    print_table(
        headings,
        sorted(rows),
        empty="No plugins.",
        shrink=("OFFERS", "CAUSE"),
        leave_out=("OFFERS", "DOOR", "VERSION", "CAUSE", "FROM", "STATUS"),
    )
