"""Run `amplifier init`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from .app import json_option, model_option, provider_option
from .bundles.new import choose_name, name_missing, suggest_run, write_new
from .output import print_json


@click.command(epilog="Example: amplifier init --provider openai")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="Name of the bundle. Default: the name of its folder.")
@provider_option
@model_option
@click.option("--force", is_flag=True, help="Replace a bundle.md; the old one becomes bundle.md.backup.")
@json_option
@click.pass_context
def init(
    ctx: click.Context,
    folder: Path,
    name: str | None,
    provider: str | None,
    model: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a first bundle.md into FOLDER (default: this one), with the provider found here.

    It is the one with a key, in the environment or kept by `amplifier auth login`. Without a key it is a local Ollama,
    else the playbook, which repeats your words.
    """
    from ..bundle.first_provider import choose_provider
    from ..bundle.starter import starter
    from ..documents.files import back_up, write_whole
    from ..security.trust import trust_written

    name, path = choose_name(folder, name), folder / "bundle.md"
    choice = choose_provider(provider, model)
    if force and path.is_file():
        back_up(path)
        with ExitStack() as undoing:
            real = path.resolve()
            undoing.callback(real.with_name(f"{real.name}.backup").replace, real)
            write_whole(path, starter(name, choice))
            trust_written(path, [path])
            undoing.pop_all()
    else:
        with ExitStack() as undoing:
            if force and (path.is_symlink() or path.exists()):  # a broken link, or no file
                undoing.callback(path.rename(path.with_name("bundle.md.backup")).rename, path)
            path = write_new(folder, starter(name, choice), "replace a bundle.md with --force")
            undoing.pop_all()
    if as_json:
        facts = {"provider": choice.module, "reason": choice.reason, "remarks": list(choice.remarks)}
        print_json("init/1", {"name": name, "path": str(path), **facts})
        return
    click.echo(path)
    for line in (f"{choice.module}: {choice.reason}", *choice.remarks):
        click.echo(line, err=True)
    name_missing(ctx, path)
    suggest_run(folder)
