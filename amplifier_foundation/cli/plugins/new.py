"""Run `amplifier plugin new`."""

from __future__ import annotations

from pathlib import Path

import click

from ...documents.safe_text import shell_word
from ...packages.creating import KINDS
from ..app import json_option
from ..output import print_json


@click.command(epilog="Example: amplifier plugin new trigger git-commit")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Folder of the package.")
@json_option
def new(kind: str, name: str, folder: Path | None, as_json: bool) -> None:
    """Write a package with a plugin of this KIND, its tests and its CI into a new folder, amplifier-KIND-NAME."""
    from ...cli import _COMMANDS
    from ...packages.creating import check_name, create_package

    folder = create_package(kind, name, folder, _COMMANDS)
    dist = f"amplifier-{kind}-{check_name(kind, name)}"
    if as_json:
        print_json("plugin.new/1", {"kind": kind, "dist": dist, "path": str(folder)})
        return
    click.echo(folder)
    click.echo(f"Work on it: cd {shell_word(str(folder))} && pip install -e '.[dev]' && pytest", err=True)
    click.echo(f"Try it: amplifier plugin check {dist}", err=True)
