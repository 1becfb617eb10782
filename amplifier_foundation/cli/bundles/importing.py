"""Run `amplifier bundle import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from amplifier_core.errors import SessionConflict

from ...documents.safe_text import one_line, plain
from ...operations.loading import known_bundles
from ..app import json_option, plugins_of, read_settings_here
from ..output import print_json
from .new import choose_name, suggest_run


@click.command("import", epilog="Example: amplifier bundle import .claude/agents/reviewer.md --to reviewer")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "--to", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), help="Write it there."
)
@click.option("--name", help="Name of the bundle. Default: its name in Claude Code.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@json_option
@click.pass_context
def import_(ctx: click.Context, path: Path, folder: Path | None, name: str | None, force: bool, as_json: bool) -> None:
    """Make a bundle of an agent's file, a plugin or a .claude folder of Claude Code.

    FOLDER is ./NAME by default. What a bundle cannot have is listed on stderr. Nothing of it is run; the bundle is not
    trusted before you say so.
    """
    from ...bundle.check import check_file
    from ...bundle.importing.claude_plugins import read_plugin
    from ...bundle.importing.writing import write_bundle
    from .snippets import print_problem

    path = path.expanduser()
    path = path.resolve() if path.name in ("", "..") else path
    plugin = read_plugin(path)
    plugin.about["name"] = choose_name(folder or path, name or str(plugin.about["name"]))
    folder = folder or Path(plugin.about["name"])
    try:
        file = write_bundle(plugin, folder, overwrite=force)
    except SessionConflict as error:
        raise SessionConflict(error.session_id, f"{error}, or overwrite its files with --force") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise click.UsageError(f"{folder} cannot be written: {why}") from error
    plugins = plugins_of(ctx)
    problems = check_file(str(file), plugins, registry=known_bundles(plugins, read_settings_here()))
    left_out = [each._asdict() for each in plugin.source.left_out]
    if as_json:
        data: dict[str, Any] = {"name": plugin.about["name"], "path": str(file), "files": len(plugin.files)}
        data |= {"agents": [agent.name for agent in plugin.agents], "skills": plugin.skills}
        data |= {"commands": plugin.commands, "hooks": sorted(plugin.hooks), "servers": sorted(plugin.servers)}
        found = [problem.as_dict() for problem in problems]
        print_json("bundle.import/1", {**data, "left_out": left_out, "problems": found})
        return
    click.echo(plain(str(file)))
    for each in plugin.source.left_out:
        where = f"{each.file}: {each.key}" if each.key else each.file
        click.echo(one_line(f"left out: {where}: {each.reason}", 1000), err=True)
    for problem in problems:
        print_problem(problem, with_line=False)
    suggest_run(folder)
