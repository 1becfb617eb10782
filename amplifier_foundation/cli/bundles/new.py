"""Run `amplifier bundle new`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from amplifier_core.errors import AmplifierError, SessionConflict

from ...documents.safe_text import shell_word
from ..app import json_option, plugins_of
from ..output import print_json
from .installing import find_missing


@click.command(epilog="Example: amplifier bundle new reviewer")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="Name of the bundle. Default: the name of its folder.")
@json_option
@click.pass_context
def new(ctx: click.Context, folder: Path, name: str | None, as_json: bool) -> None:
    """Write a commented bundle.md that runs into FOLDER (default: this one); an existing bundle stays as it is."""
    from ...bundle.starter import starter

    name = choose_name(folder, name)
    path = write_new(folder, starter(name), "choose another folder")
    if as_json:
        print_json("bundle.new/1", {"name": name, "path": str(path)})
        return
    click.echo(path)
    name_missing(ctx, path)
    suggest_run(folder)


def choose_name(folder: Path, name: str | None) -> str:
    """Return the name of a new bundle, by default that of its folder. Raises `click.UsageError`."""
    from ...bundle.names import NAME_RULE, is_bundle_name

    name = name or folder.resolve().name or "bundle"
    if not is_bundle_name(name):
        raise click.UsageError(f"'{name}' cannot be the name of a bundle: {NAME_RULE}; choose one with --name")
    return name


def write_new(folder: Path, text: str, remedy: str) -> Path:
    """Write a new `bundle.md`, trust and return it; nothing is left of one that cannot be trusted.

    Raises `SessionConflict` with the `remedy` if the folder has a bundle, `click.UsageError` and the errors of
    `trust_written`.
    """
    from ...paths import BUNDLE_FILES, find_own_file
    from ...security.trust import trust_written

    path = folder / BUNDLE_FILES[0]
    there = path if path.exists() else find_own_file(folder)
    if there is not None:
        raise SessionConflict(str(there), f"{there} exists and stays as it is; {remedy}")
    with ExitStack() as undoing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = path.open("x", encoding="utf-8")
            undoing.callback(path.unlink)
            with file:
                file.write(text)
        except OSError as error:
            raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
        trust_written(path, [path])
        undoing.pop_all()
    return path


def name_missing(ctx: click.Context, bundle: Path) -> None:
    """Print the command that installs what a new bundle needs on stderr, if something is missing.

    It is a hint: whatever keeps it from being known is told by the command that needs it.
    """
    from amplifier_core.plugins import Plugins

    try:
        missing = find_missing(str(bundle), Plugins())  # entry points tell, mostly
        if missing:
            missing = find_missing(str(bundle), plugins_of(ctx))
    except AmplifierError:
        return
    packages = dict.fromkeys(each.requirement for each in missing if each.requirement)
    if packages:
        click.echo(f"It needs packages that are missing. Install them with: pip install {' '.join(packages)}", err=True)


def suggest_run(folder: Path) -> None:
    """Print the command to try the bundle of a folder on stderr."""
    where = "" if folder.resolve() == Path.cwd() else f"-b {shell_word(str(folder))} "
    click.echo(f'Try it: amplifier run {where}"hello"', err=True)
