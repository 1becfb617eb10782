"""Run `amplifier acp`."""

from __future__ import annotations

from functools import partial

import click


@click.command(epilog="Example: amplifier acp")
@click.option(
    "-b", "--bundle", "bundle_path", metavar="BUNDLE", help="Bundle of new sessions. Default: that of their folder."
)
@click.option("--login", metavar="PROVIDER", hidden=True, help="Keep the key of a provider instead.")
@click.pass_context
def acp(ctx: click.Context, bundle_path: str | None, login: str | None) -> None:
    """Be an agent for an editor: speak the Agent Client Protocol on stdin and stdout.

    The editor starts this command. Its settings for Zed, JetBrains and Neovim are in the README of amplifier-acp.
    """
    if login is not None:
        from amplifier_foundation.cli.auth import login as keep_key

        ctx.invoke(keep_key, provider=login, check=False, as_json=False)
        return
    from amplifier_foundation.cli.app import plugins_of

    from .serving import serve

    ctx.exit(serve(partial(plugins_of, ctx), bundle_path))
