"""`amplifier config`: what the program is set to, and by whom."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from . import exits
from .app import json_option, settings_here
from .output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..dicts import Keys
    from ..settings import Origin, Scope, Settings

_KEY = re.compile(r"(?:^|\.)([^.\[\]]+)(?=[.\[]|$)|\[(\"(?:[^\"\\]|\\.)*\")\]")
"""One key of `overrides["a.b"].config`."""

scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    show_default=True,
    help="Whose: yours everywhere, everybody's in this project, yours in this project.",
)


@click.group()
def config() -> None:
    """See and change settings."""


@config.command()
@json_option
def show(as_json: bool) -> None:
    """Show every setting, its value, and where that comes from; secrets are not shown."""
    from ..bundles.positions import format_path
    from ..settings.places import settings_files

    settings = settings_here()
    rows = list(_rows(settings))
    if as_json:
        listed = [{"key": format_path(keys), "value": value, "origin": _origin(where)} for keys, value, where in rows]
        print_json("config.show/1", {"settings": listed, "files": settings_files()})
        return
    print_table(
        ("SETTING", "VALUE", "FROM"),
        ((format_path(keys), _text(value), str(where)) for keys, value, where in rows),
        empty="No settings.",
    )


@config.command()
@click.argument("key")
@json_option
@click.pass_context
def get(ctx: click.Context, key: str, as_json: bool) -> None:
    """Print the value of one setting; a secret is not shown."""
    settings, keys = settings_here(), _keys(key)
    if settings.get(keys) is None:
        _not_set(settings, key)
        ctx.exit(exits.NOT_FOUND)
    value, where = _public(settings, keys), settings.origin(keys)
    if as_json:
        print_json("config.get/1", {"key": key, "value": value, "origin": _origin(where)})
    else:
        click.echo(_text(value))


@config.command("set")
@click.argument("key")
@click.argument("value")
@scope_option
def set_(key: str, value: str, scope: Scope) -> None:
    """Set KEY to VALUE, which is YAML: a text, a number, true, {a: 1}."""
    from ..bundles.positions import show_file
    from ..settings import write_setting

    keys = _keys(key)
    file = write_setting(scope, keys, _value(value))
    click.echo(f"{show_file(file)}: {key} is set")
    _say_who_overrules(keys, scope)


@config.command()
@click.argument("key")
@scope_option
def unset(key: str, scope: Scope) -> None:
    """Remove KEY from a settings file, so that what is set elsewhere counts again."""
    from ..bundles.positions import show_file
    from ..settings import unset_setting

    file = unset_setting(scope, _keys(key))
    click.echo(f"{show_file(file)}: {key} is not set any more")


def _keys(text: str) -> Keys:
    """Return the keys of a setting as `config show` writes them. Raises `click.UsageError`."""
    from ..dicts import keys_of

    found = list(_KEY.finditer(text))
    try:
        if "".join(match[0] for match in found) == text:
            return keys_of([match[1] or json.loads(match[2]) for match in found])
    except ValueError:
        pass
    raise click.UsageError(f"'{text}' is no setting's name; write keys with dots between them: fetch.timeout")


def _value(text: str) -> Any:
    """Return what VALUE says as YAML, or itself when it is none."""
    from ..bundles.positions import Positions
    from ..bundles.yaml_reader import Unreadable, read_yaml

    try:
        value, problems = read_yaml(text, Positions("VALUE"))
    except Unreadable:
        return text
    return text if problems else value


def _rows(settings: Settings) -> Iterator[tuple[Keys, Any, Origin]]:
    from ..dicts import flattened

    for keys, _ in flattened(settings.values):
        yield keys, _public(settings, keys), settings.origin(keys)


def _public(settings: Settings, keys: Keys) -> Any:
    """Return a value as it may be shown: without secrets, also those within a URI."""
    from amplifier_core.utils import redact_secrets

    value: Any = redact_secrets(settings.values)
    for key in keys:
        value = value[key] if isinstance(value, dict) else value  # what lies below a secret is that secret
    return _without_credentials(value)


def _without_credentials(value: Any) -> Any:
    from ..sources.uris import shown

    if isinstance(value, dict):
        return {key: _without_credentials(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_credentials(each) for each in value]
    return shown(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if value is None or value == {}:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _origin(where: Origin) -> dict[str, Any]:
    if isinstance(where, str):
        return {"source": where, "file": None, "line": None, "column": None}
    return {"source": "file", "file": where.file, "line": where.line, "column": where.column}


def _not_set(settings: Settings, key: str) -> None:
    from ..bundles.positions import format_path
    from ..bundles.problems import did_you_mean
    from ..dicts import flattened

    known = {format_path(keys[:end]) for keys, _ in flattened(settings.values) for end in range(1, len(keys) + 1)}
    hint = did_you_mean(key, known - {key}) or "."
    click.echo(f"amplifier: '{key}' is not set{hint} See: amplifier config show", err=True)


def _say_who_overrules(keys: Keys, scope: Scope) -> None:
    """Tell on stderr when what was just set does not count here."""
    from ..settings import InvalidSettings, read_settings

    try:
        settings = read_settings()
    except InvalidSettings as error:  # another file; what was to be written is
        click.echo(str(error), err=True)
        return
    if settings.layer_of(keys).source != scope:
        click.echo(f"here it has another value all the same, from: {settings.origin(keys)}", err=True)
