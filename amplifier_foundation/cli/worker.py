"""Run `amplifier worker`: handle the events of background sessions that other hosts accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .app import trust_option
from .completing import complete_bundles
from .loops import run_async
from .up import bring_up


@click.command(epilog="Example: amplifier worker bundle.md --once")
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...", shell_complete=complete_bundles)
@click.option("--once", is_flag=True, help="Handle the waiting events, and end: with 1 if one is given up or waits.")
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Work in this folder."
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file; it rotates at 10 MB.")
@trust_option
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def worker(ctx: click.Context, /, bundles: tuple[str, ...], trusts: bool, quiet: bool, **options: Any) -> None:
    """Handle the events of each BUNDLE's background sessions (default: bundle.md here), without triggers.

    It needs a storage that several hosts share, such as storage-postgres; any number of workers may run. Ctrl-C or
    SIGTERM gives running sessions 8 seconds to finish; what they leave, another host continues.
    """
    quiet = quiet or ctx.obj["quiet"]
    ctx.exit(
        run_async(
            bring_up(ctx, bundles or (None,), role="worker", dry_run=False, quiet=quiet, trusts=trusts, **options)
        )
    )
