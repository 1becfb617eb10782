"""Run `amplifier dashboard`."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from amplifier_foundation.cli.loops import run_in_loop

if TYPE_CHECKING:
    from .config import PageConfig


@click.command(epilog="Example: amplifier dashboard --open")
@click.option("--port", default=8790, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes any free.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; others than this machine need a password."
)
@click.option("--name", "names", multiple=True, help="Another name of this host, such as a proxy's; repeatable.")
@click.option("--password-env", metavar="NAME", help="The environment variable with the password.")
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate, for HTTPS.")
@click.option("--tls-key", default="", metavar="FILE", help="Private key of the certificate.")
@click.option("--insecure", is_flag=True, help="Let other machines in without TLS.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--link", "links", is_flag=True, help="Print a new link to each page that runs; serve nothing.")
@click.option("--log-out", "ends", is_flag=True, help="End all logins and links; serve nothing.")
@click.pass_context
@run_in_loop
async def dashboard(ctx: click.Context, /, opens: bool, links: bool, ends: bool, **options: Any) -> None:
    """Serve a page to watch and steer background sessions until Ctrl-C, for this machine alone unless asked.

    The printed link lets one browser in, once, within a day; that browser stays known for 30 days, until it logs out.
    """
    from amplifier_foundation.cli.app import plugins_of, project_here, use_inbox
    from amplifier_foundation.cli.signals import Stopper
    from amplifier_foundation.operations.acting import person_here
    from amplifier_foundation.security.session_mark import refuse_in_session

    from .desk import Desk
    from .opening import opened
    from .running import find_pages
    from .server import end_logins, make_link, serving

    refuse_in_session("dashboard")  # who has a link may approve calls
    if ends:
        end_logins()
        click.echo("All browsers are logged out, and no link that was made before lets one in.")
        return
    if links:
        default = ParameterSource.DEFAULT
        chosen = {name: options[name] for name in ("host", "port") if ctx.get_parameter_source(name) is not default}
        if chosen.get("host") == "localhost":
            chosen["host"] = "127.0.0.1"  # where such a page listens
        for address in find_pages(**chosen):
            click.echo(make_link(address))
        return
    config = _read_options(options)
    plugins = plugins_of(ctx)
    with Stopper() as stopper:
        async with use_inbox(plugins) as store:
            desk = Desk(store, plugins, person_here("dashboard").name, project_here(), config.read_only)
            async with serving(desk, config) as address:
                link = make_link(address)
                click.echo(link)
                click.echo("The link works once, for one browser. Ctrl-C stops.", err=True)
                click.echo("To end all logins: amplifier dashboard --log-out", err=True)
                if opens:
                    click.echo("If no browser shows the page, open the link yourself.", err=True)
                alone = partial(click.echo, "amplifier: no browser was found, open the link yourself", err=True)
                async with opened(link, alone) if opens else nullcontext():
                    await stopper.wait()
    ctx.exit(stopper.code)


def _read_options(options: dict[str, Any]) -> PageConfig:
    """Return the configuration in the options. Raises `PageConfigError`, `click.UsageError`."""
    import os

    from .config import read_config

    name = options.pop("password_env")
    if name and not os.environ.get(name):
        state = "empty" if name in os.environ else "not set"
        raise click.UsageError(f"--password-env: the environment variable {name} is {state}")
    return read_config({**options, "names": [*options["names"]], "password": os.environ.get(name, "") if name else ""})
