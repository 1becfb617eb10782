"""`amplifier bundle new`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from amplifier_core.errors import SessionConflict

from ..app import json_option
from ..output import print_json


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="What the bundle is called; default: as its folder is.")
@json_option
def new(folder: Path, name: str | None, as_json: bool) -> None:
    """Write a bundle.md that runs, with comments, into FOLDER (default: this one); a file that is there stays."""
    from ...bundles.names import is_bundle_name
    from ...bundles.starter import starter

    named = name or folder.resolve().name or "bundle"
    if not is_bundle_name(named):
        told = "cannot be a bundle's name: 1 to 128 characters, without ':', '/' and '\\'; say another with --name"
        raise click.UsageError(f"'{named}' {told}")
    path = _write(folder, starter(named))
    if as_json:
        print_json("bundle.new/1", {"name": named, "path": str(path)})
        return
    click.echo(path)
    where = "" if folder.resolve() == Path.cwd() else f"-b {shlex.quote(str(folder))} "
    click.echo(f'Try it: amplifier run {where}"hello"', err=True)


def _write(folder: Path, text: str) -> Path:
    """Write the bundle. Raises `SessionConflict` when there is one, `click.UsageError` when it cannot be written."""
    from ...bundles.references import FILE_NAMES

    path = folder / FILE_NAMES[0]
    there = next((folder / name for name in FILE_NAMES if (folder / name).exists()), None)
    if there is not None:
        raise SessionConflict(str(there), f"{there} is there already and stays as it is; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path
