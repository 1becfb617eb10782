"""Run `amplifier dashboard`."""

from __future__ import annotations

import click

from amplifier_foundation.cli.loops import run_in_loop


@click.command(epilog="Example: amplifier dashboard --open")
@click.option("--port", default=8790, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes any free.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.pass_context
@run_in_loop
async def dashboard(ctx: click.Context, port: int, opens: bool, read_only: bool) -> None:
    """Serve a page to watch and steer background sessions, on this machine alone, until Ctrl-C."""
    import getpass

    from amplifier_foundation.cli.app import plugins_of, project_here, use_inbox
    from amplifier_foundation.cli.up import Stopper

    from .desk import Desk
    from .server import serving

    plugins = plugins_of(ctx)
    with Stopper() as stopper:
        async with use_inbox(plugins) as store:
            desk = Desk(store, plugins, getpass.getuser(), project_here(), read_only)
            async with serving(desk, port=port) as address:
                click.echo(address)
                click.echo("The address works once, for one browser. Ctrl-C stops.", err=True)
                if opens:
                    click.launch(address)
                await stopper.wait()
    ctx.exit(stopper.code)
