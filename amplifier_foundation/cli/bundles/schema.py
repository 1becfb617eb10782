"""Run `amplifier bundle schema`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...documents.json_text import dump_json
from ..app import json_option, plugins_of
from ..output import print_json

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

NAME = "bundle.schema.json"


@click.command(epilog="Example: amplifier bundle schema > bundle.schema.json")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@json_option
@click.pass_context
def schema(ctx: click.Context, output: Path | None, as_json: bool) -> None:
    """Print the JSON Schema (2020-12) of bundle.md, with the configuration of the installed triggers and modules.

    For an editor with a YAML language server, put the comment printed on stderr into the first line of the front
    matter.
    """
    made = schema_here(plugins_of(ctx))
    text = dump_json(made, indent=2)
    if output is not None:
        try:
            output.write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        print_json("bundle.schema/1", made)
    elif output is None:
        click.echo(text)
    click.echo(f"# yaml-language-server: $schema={output or NAME}", err=True)


def schema_here(plugins: Plugins) -> dict[str, Any]:
    """Return the schema of bundles for the installed plugins and modules.

    A module is imported only when its source defines `config_schema`: an import may load a whole SDK.
    """
    from importlib import import_module

    from amplifier_core.entry_points import find_entry_points
    from amplifier_core.errors import NameTaken
    from amplifier_core.loader import GROUP
    from amplifier_core.plugin_guard import guard_module

    from ...bundle.check import names_of_modules
    from ...bundle.json_schema import bundle_schema

    configs: dict[str, dict[str, Any]] = {}
    for entry in find_entry_points(GROUP):
        if _defines_schema(entry.module):
            try:
                with guard_module(f"module '{entry.name}' of {entry.dist}"):
                    configs[entry.name] = _config_schema(import_module(entry.module))
            except Exception:  # `plugin list` shows a module that does not load
                continue
    for name in plugins.triggers:
        try:
            configs[name] = _config_schema(plugins.triggers.get(name))
        except NameTaken:
            continue
    found = {name: config for name, config in configs.items() if config}
    return bundle_schema(modules=names_of_modules(), triggers=list(plugins.triggers), configs=found)


def _defines_schema(module: str) -> bool:
    import ast

    from ...bundle.credentials import package_source

    try:
        return any(getattr(node, "name", "") == "config_schema" for node in ast.parse(package_source(module)).body)
    except (ImportError, OSError, ValueError, SyntaxError):
        return False


def _config_schema(owner: Any) -> dict[str, Any]:
    """Return `owner.config_schema()`; empty when it fails, or is not the schema of a mapping."""
    offered = getattr(owner, "config_schema", None)
    try:
        found = offered() if callable(offered) else None
    except Exception:  # a plugin's own fault must not hide the other schemas
        return {}
    return found if isinstance(found, dict) else {}
