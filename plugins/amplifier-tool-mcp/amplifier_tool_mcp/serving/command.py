"""Run `amplifier mcp serve`."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amplifier_core.errors import AmplifierError
from amplifier_foundation.cli.app import load_bundle_at, plugins_of, require_runnable, use_store
from amplifier_foundation.cli.loops import run_in_loop
from amplifier_foundation.cli.running.terminal import tell
from amplifier_foundation.documents.safe_text import plain
from amplifier_foundation.paths import data_home, make_private

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_foundation.bundle.model import Bundle

TOKEN = "AMPLIFIER_MCP_TOKEN"
"""The environment variable with the token of `--http`."""


@click.command(epilog="Example: amplifier mcp serve -b reviews/bundle.md")
@click.option(
    "-b",
    "--bundle",
    "paths",
    metavar="BUNDLE",
    multiple=True,
    help="Offer this bundle; repeatable. Default: the bundle.md of this project.",
)
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"Serve on 127.0.0.1 instead of stdin and stdout; 0: a free port. The token is {TOKEN}, or in a file.",
)
@click.pass_context
@run_in_loop
async def serve(ctx: click.Context, paths: tuple[str, ...], port: int | None) -> int:
    """Offer bundles and background sessions to other agents, as the tools of an MCP server.

    A program such as an editor starts this command, and calls a tool for each bundle (ask_NAME) and for each of its
    background sessions (wake_NAME). What needs an approval is denied: nobody is there to answer.
    """
    plugins = plugins_of(ctx)
    bundles = [await _load(path, plugins) for path in paths or (None,)]
    from .calls import Calls
    from .offers import is_asked, make_name, make_offers
    from .server import make_server, serve_stdio

    offers = make_offers(bundles)
    for each in bundles:
        if not is_asked(each):
            name = f"bundle '{plain(each.name)}' has no instruction below its front matter"
            tell(f"amplifier: {name}: it is offered without {make_name('ask', each.name)}")
    async with use_store(plugins) as store:
        with Calls(
            offers, store, plugins, Path.cwd(), lambda problem: tell(f"amplifier: a session {plain(problem)}")
        ) as calls:
            server = make_server(offers, calls)
            if port is None:
                return await serve_stdio(server)
            from .http import serve_http

            token, place = _read_token()
            try:
                return await serve_http(
                    server, port, token, lambda url: tell(f"Serving on {url} with the token in {place}")
                )
            except OSError as error:
                raise PortTaken(port, error) from error


class PortTaken(AmplifierError, OSError):
    """The port of `--http` cannot be listened on."""

    def __init__(self, port: int, error: OSError) -> None:
        super().__init__(f"port {port}: {os.strerror(error.errno or 0)}. Choose another one, or 0 for a free one")


def _read_token() -> tuple[str, str]:
    """Return the token of HTTP and where it stands: in the environment, else in a private file that stays."""
    if given := os.environ.get(TOKEN):
        return given, f"${TOKEN}"
    path = make_private(data_home()) / "mcp.token"
    with suppress(FileExistsError), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    token = path.read_text().strip()
    if not token:
        raise click.UsageError(f"{path} is empty; delete it for a new token")
    return token, str(path)


async def _load(path: str | None, plugins: Plugins) -> Bundle:
    bundle = await load_bundle_at(path, plugins)
    require_runnable(bundle, plugins)
    return bundle
