"""`amplifier bundle schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..app import json_option, plugins_of
from ..output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amplifier_core.plugins import Plugins

NAME = "bundle.schema.json"


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@json_option
@click.pass_context
def schema(ctx: click.Context, output: Path | None, as_json: bool) -> None:
    """Print the JSON Schema (2020-12) of bundle.md, with what the installed triggers and modules may be told.

    An editor with a YAML language server uses it by the comment that is printed on stderr: the first line of the front
    matter.
    """
    made = schema_here(plugins_of(ctx))
    if output is not None:
        _write(output, json.dumps(made, indent=2, ensure_ascii=False) + "\n")
    if as_json:
        print_json("bundle.schema/1", made)
    elif output is None:
        click.echo(json.dumps(made, indent=2, ensure_ascii=False))
    click.echo(f"# yaml-language-server: $schema={output or NAME}", err=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def schema_here(plugins: Plugins) -> dict[str, Any]:
    """Return the schema of bundles as they may be written where these plugins and modules are installed."""
    from ...bundles.check import names_of_modules
    from ...bundles.json_schema import bundle_schema

    configs = dict([*_of_modules(), *_of_triggers(plugins)])
    return bundle_schema(modules=names_of_modules(), triggers=list(plugins.triggers), configs=configs)


def _of_triggers(plugins: Plugins) -> Iterator[tuple[str, dict[str, Any]]]:
    from amplifier_core.errors import NameTaken

    for name in plugins.triggers:
        try:
            found = _asked(plugins.triggers.get(name))
        except NameTaken:
            continue
        if found is not None:
            yield name, found


def _of_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas that modules offer; one is imported only when it is seen to offer one."""
    from importlib import import_module
    from importlib.metadata import entry_points

    from amplifier_core.loader import GROUP

    for entry in entry_points(group=GROUP):
        if not _offers_schema(entry.module):
            continue
        try:
            found = _asked(import_module(entry.module))
        except Exception:  # a module that does not load is shown by `plugin list`
            continue
        if found is not None:
            yield entry.name, found


def _offers_schema(module: str) -> bool:
    """Whether the source of a package defines `config_schema`; nothing is imported: it may bring a whole SDK along."""
    import ast
    from importlib.util import find_spec

    if "." in module:  # to find it would import the package that it is in
        return False
    try:
        spec = find_spec(module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        return any(getattr(node, "name", "") == "config_schema" for node in ast.parse(source).body)
    except (ImportError, OSError, ValueError, SyntaxError):
        return False


def _asked(owner: Any) -> dict[str, Any] | None:
    """Return what `owner.config_schema()` answers, when that is a schema of a mapping."""
    offered = getattr(owner, "config_schema", None)
    try:
        found = offered() if callable(offered) else None
    except Exception:  # a plugin's own mistake takes nothing from the rest
        return None
    return found if isinstance(found, dict) else None
