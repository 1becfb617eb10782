"""Log in to a remote server."""

from __future__ import annotations

import asyncio
import sys

import click

from amplifier_foundation.cli.app import json_option
from amplifier_foundation.cli.loops import run_in_loop
from amplifier_foundation.cli.output import print_json


@click.command(epilog="Example: amplifier mcp login docs")
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option("--client-id", metavar="ID", help="A client that was registered with the service.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port that it was registered with.")
@json_option
@click.pass_context
@run_in_loop
async def login(
    ctx: click.Context, name: str, no_browser: bool, client_id: str | None, port: int, as_json: bool
) -> None:
    """Log in to the MCP server NAME with OAuth, in a browser. The tokens are kept with the keys of `amplifier auth`."""
    from amplifier_foundation.security.session_mark import refuse_in_session

    from ..connection import import_sdk
    from ..errors import ServerError
    from ..oauth import key_name, log_in
    from ..servers import expand
    from .finding import find_server

    refuse_in_session("mcp login")
    _, server = await asyncio.to_thread(find_server, ctx, name)
    if server.config.url is None:
        raise click.UsageError(f"{name} is a command; only remote servers have a login")
    given = await expand({"url": server.config.url, "headers": server.config.headers})
    await asyncio.to_thread(import_sdk)

    async def show(address: str) -> None:
        click.echo(f"Log in at:\n{address}", err=True)
        if not no_browser and sys.stderr.isatty():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, address)

    try:
        is_new = await log_in(name, given["url"], given["headers"], show, client_id=client_id, port=port)
    except OSError as error:
        raise ServerError(f"port {port} cannot be used: {error.strerror or error}") from None
    if as_json:
        print_json("mcp.login/1", {"name": name, "key": key_name(name, given["url"]) if is_new else None})
    elif is_new:
        click.echo(f"{name}: logged in; the tokens are kept as {key_name(name, given['url'])}")
    else:
        click.echo(f"{name}: it asks for no login")
