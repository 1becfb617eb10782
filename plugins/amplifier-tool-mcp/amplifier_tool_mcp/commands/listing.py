"""List the servers of the current folder."""

from __future__ import annotations

from typing import Any

import click

from amplifier_foundation.cli.app import json_option
from amplifier_foundation.cli.output import print_json, print_table
from amplifier_foundation.cli.running.terminal import tell


@click.command("list", epilog="Example: amplifier mcp list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the MCP servers here: of the bundle, the settings, and a trusted .mcp.json. None of them is started."""
    from amplifier_foundation.documents.safe_text import one_line

    from .finding import find_servers_here

    found = find_servers_here(ctx)
    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "type": each.config.kind,
            "target": each.target,
            "source": each.source,
            "enabled": each.config.enabled,
            "trusted": each.trusted,
        }
        for each in found.servers
    ]
    for problem in found.problems:
        tell(f"amplifier: {problem}")
    if as_json:
        print_json("mcp.list/1", rows)
        return
    print_table(
        ("SERVER", "TYPE", "TARGET", "FROM", "STATE"),
        [
            (
                row["name"],
                row["type"],
                one_line(row["target"], 80),
                row["source"],
                ("trusted" if row["trusted"] else "ready") if row["enabled"] else "off",
            )
            for row in rows
        ],
        empty="There are no MCP servers here. Add one: amplifier mcp add NAME -- COMMAND",
        shrink=("TARGET", "FROM"),
        leave_out=("TYPE", "FROM"),
    )
    if rows and not found.bundle:
        click.echo("No bundle here uses them: add `- module: tool-mcp` to the tools of one.", err=True)
