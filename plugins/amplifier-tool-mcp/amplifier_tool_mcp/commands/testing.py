"""Start one server, and list what it offers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from amplifier_foundation.cli.app import json_option
from amplifier_foundation.cli.loops import run_in_loop
from amplifier_foundation.cli.numbers import NumberRange
from amplifier_foundation.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ..servers import Server


@click.command(epilog="Example: amplifier mcp test docs")
@click.argument("name")
@click.option("--within", type=NumberRange(0.1, 600), default=60, show_default=True, help="Seconds to wait.")
@json_option
@click.pass_context
@run_in_loop
async def test(ctx: click.Context, name: str, within: float, as_json: bool) -> None:
    """Start the MCP server NAME, or connect to it, and list its tools and prompts."""
    from amplifier_foundation.documents.safe_text import one_line
    from amplifier_foundation.security.session_mark import mark_process

    from .finding import find_server

    _, server = find_server(ctx, name)
    mark_process()
    facts = await _read_facts(server, within)
    if as_json:
        print_json("mcp.test/1", facts)
        return
    about = " ".join(filter(None, (facts["server"], facts["version"])))
    click.echo(f"{name}: {about or 'connected'}, protocol {facts['protocol']}", err=True)
    print_table(
        ("KIND", "NAME", "DESCRIPTION"),
        [
            (kind, each["name"], one_line(each["description"], 100))
            for kind in ("tool", "prompt")
            for each in facts[f"{kind}s"]
        ],
        empty="It offers neither tools nor prompts.",
        shrink=("DESCRIPTION",),
        leave_out=("DESCRIPTION",),
    )


async def _read_facts(server: Server, seconds: float) -> dict[str, Any]:
    """Return what a server offers. Raises `ServerError`."""
    from ..connection import Connection
    from ..errors import ServerError
    from ..listing import plain
    from ..names import make_tool_name

    connection = Connection(server)
    task = asyncio.create_task(connection.run())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await connection.is_settled.wait()
        if not connection.is_ready:
            why = connection.problem or f"it is not ready after {seconds:g} seconds"
            raise ServerError(f"the MCP server '{server.name}' cannot be used: {why}")
        client, listing, taken = connection.client, connection.listing, dict[str, str]()
        info = client.server_info
        return {
            "name": server.name,
            "server": plain(info.name, 100) if info is not None else "",
            "version": plain(info.version, 100) if info is not None else "",
            "protocol": client.protocol_version,
            "tools": [
                {
                    "name": make_tool_name(server.slug, each.name, taken),
                    "description": each.description,
                    "fingerprint": each.fingerprint,
                }
                for each in listing.tools
            ],
            "prompts": [
                {"name": f"/mcp:{server.slug}:{each.name}", "description": each.description} for each in listing.prompts
            ],
            "resources": listing.has_resources,
            "problems": list(listing.left_out),
        }
    finally:
        await connection.close(task)
