"""Run `amplifier config`: show and change settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..cli import exits
from .app import json_option, read_settings_here
from .completing import complete_config_keys
from .output import print_json, print_table
from .running.terminal import tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.dicts import Keys
    from ..settings import Origin, Scope, Settings

_KEY = re.compile(r"(?:^|\.)([^.\[\]]+)(?=[.\[]|$)|\[(\"(?:[^\"\\]|\\.)*\")\]")
"""One key of `overrides["a.b"].config`."""

scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    show_default=True,
    help="user: you, everywhere; project: everybody in this project; local: you, in this project.",
)


@click.group()
def config() -> None:
    """Show and change settings."""


@config.command(epilog="Example: amplifier config show")
@json_option
def show(as_json: bool) -> None:
    """Show every setting with its value and origin; secrets are hidden."""
    from ..documents.dicts import flatten
    from ..documents.positions import format_path
    from ..settings.places import settings_files

    settings = read_settings_here()
    rows = [(keys, _public(settings, keys), settings.origin(keys)) for keys, _ in flatten(settings.values)]
    if as_json:
        listed = [{"key": format_path(keys), "value": value, "origin": _origin(where)} for keys, value, where in rows]
        print_json("config.show/1", {"settings": listed, "files": settings_files()})
        return
    print_table(
        ("SETTING", "VALUE", "FROM"),
        ((format_path(keys), _text(value), str(where)) for keys, value, where in rows),
        empty="No settings.",
        shrink=("VALUE", "FROM"),
        leave_out=("FROM",),
    )


@config.command(epilog="Example: amplifier config get retention.max_size")
@click.argument("key", shell_complete=complete_config_keys)
@json_option
@click.pass_context
def get(ctx: click.Context, key: str, as_json: bool) -> None:
    """Print the value of one setting; a secret is hidden."""
    from ..documents.dicts import flatten
    from ..documents.positions import format_path
    from ..documents.problems import did_you_mean

    settings, keys = read_settings_here(), _keys(key)
    if settings.get(keys) is None:
        paths = (keys for keys, _ in flatten(settings.values))
        known = {format_path(keys[:end]) for keys in paths for end in range(1, len(keys) + 1)}
        hint = did_you_mean(key, known - {key}) or "."
        click.echo(f"amplifier: '{key}' is not set{hint} See: amplifier config show", err=True)
        ctx.exit(exits.NOT_FOUND)
    value, where = _public(settings, keys), settings.origin(keys)
    if as_json:
        print_json("config.get/1", {"key": key, "value": value, "origin": _origin(where)})
    else:
        click.echo(_text(value))


@config.command("set", epilog="Example: amplifier config set storage storage-sqlite --scope project")
@click.argument("key", shell_complete=complete_config_keys)
@click.argument("value")
@scope_option
@click.pass_context
def set_(ctx: click.Context, key: str, value: str, scope: Scope) -> None:
    """Set KEY to VALUE, written in YAML: a text, a number, true, {a: 1}."""
    from ..documents.positions import show_file
    from ..security.trust import changing_settings
    from ..settings import InvalidSettings, read_settings, write_setting

    keys = _keys(key)
    _refuse_permissions(keys)
    written = read_value(value)
    _refuse_secret(key, keys, value, written)
    _refuse_typo(ctx, keys, written)
    with changing_settings():
        file = write_setting(scope, keys, written)
    click.echo(f"{show_file(file)}: {key} is set")
    try:
        settings = read_settings()
    except InvalidSettings as error:  # in another file; the setting is written
        tell(str(error))
        return
    if settings.layer_of(keys).source != scope:
        click.echo(f"but here the value comes from: {settings.origin(keys)}", err=True)


@config.command(epilog="Example: amplifier config unset storage")
@click.argument("key", shell_complete=complete_config_keys)
@scope_option
def unset(key: str, scope: Scope) -> None:
    """Remove KEY from a settings file; its value elsewhere counts again."""
    from ..documents.positions import show_file
    from ..security.trust import changing_settings
    from ..settings import unset_setting

    keys = _keys(key)
    _refuse_permissions(keys)
    with changing_settings():
        file = unset_setting(scope, keys)
    click.echo(f"{show_file(file)}: {key} is not set any more")


def read_value(text: str) -> Any:
    """Return the value of a text in YAML; the text itself if it is no YAML."""
    from ..documents.positions import Positions
    from ..documents.yaml_reader import Unreadable, read_yaml

    try:
        value, problems = read_yaml(text, Positions("VALUE"))
    except Unreadable:
        return text
    return text if problems else value


def _refuse_permissions(keys: Keys) -> None:
    """Raise `WithinSession` for a session that changes what sessions may do, or what runs outside of them."""
    if keys[0] in ("permissions", "notify", "servers", "transports", "disabled_plugins"):
        from ..security.session_mark import refuse_in_session

        refuse_in_session("config")


def _refuse_secret(key: str, keys: Keys, text: str, value: Any) -> None:
    """Raise `click.UsageError` for a secret: settings are plain files, read by whoever reads the folder."""
    from amplifier_core.utils.secrets import redact_text

    from ..documents.dicts import set_nested
    from ..documents.positions import Positions
    from ..documents.secrets import find_secrets

    data: dict[str, Any] = {}
    set_nested(data, keys, value)
    if find_secrets(data, Positions("VALUE")) or any(redact_text(each) != each for each in (key, text)):
        raise click.UsageError(
            "the value holds a secret, and settings are plain files. Keep it with: amplifier auth login NAME, or in an "
            "environment variable NAME; and set the reference secret://NAME"
        )


def _refuse_typo(ctx: click.Context, keys: Keys, value: Any) -> None:
    """Raise `UnknownName` for a name near an installed one; any other one may be installed later."""
    if keys[0] not in ("bundle", "models", "overrides", "storage"):
        return
    from amplifier_core.errors import UnknownName

    from ..bundle.packages import OURS, suggest
    from ..documents.problems import did_you_mean
    from ..settings.editing import nest

    for kind, name, known in _names_in(ctx, nest(keys, value)):
        near = did_you_mean(name, known) if kind == "bundle" else suggest(kind, name, known)
        if near and name not in known and name not in OURS:
            raise UnknownName(kind.removesuffix("s"), name, known)
        if kind == "storage" and name not in known:  # no command works with it
            click.echo(f"amplifier: no storage '{name}' is installed here", err=True)


def _names_in(ctx: click.Context, data: dict[str, Any]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each name of something installed in a setting: its kind, the name, and the names there are."""
    from ..bundle.check import names_of_modules
    from ..bundle.registry import BundleRegistry
    from ..bundle.sections import KINDS
    from ..documents.local_paths import kind_of
    from .app import plugins_of

    plugins, modules = plugins_of(ctx), names_of_modules()
    storage, bundle = data.get("storage"), data.get("bundle")
    if isinstance(storage, dict):
        storage = storage.get("name")
    if isinstance(storage, str):
        yield "storage", storage, set(plugins.storages)
    if isinstance(bundle, str) and "/" not in bundle and not kind_of(Path(bundle)):
        yield "bundle", bundle.partition(":")[0], set(BundleRegistry(plugins=plugins).names())
    for module, override in (data.get("overrides") or {}).items():
        kind = next((name for name, kind in KINDS.items() if module.startswith(kind.prefixes)), "")
        if kind and not (isinstance(override, dict) and "source" in override):
            yield kind, module, {each for each in modules if each.startswith(KINDS[kind].prefixes)}
    for models in (data.get("models") or {}).values():
        for provider in models if isinstance(models, dict) else ():
            yield "providers", f"provider-{provider}", {each for each in modules if each.startswith("provider-")}


def _keys(text: str) -> Keys:
    """Split the name of a setting, written as in `config show`, into keys. Raises `click.UsageError`."""
    from ..documents.dicts import keys_of

    found = list(_KEY.finditer(text))
    try:
        if "".join(match[0] for match in found) == text:
            return keys_of([match[1] or json.loads(match[2]) for match in found])
    except ValueError:
        pass
    raise click.UsageError(f"'{text}' is not the name of a setting; write keys with dots between them: fetch.timeout")


def _public(settings: Settings, keys: Keys) -> Any:
    """Return a value without secrets, also without those in a URI."""
    from amplifier_core.utils.secrets import redact_all

    value: Any = redact_all(settings.values)
    for key in keys:
        value = value[key] if isinstance(value, dict) else value  # everything below a secret is that secret
    return _without_credentials(value)


def _without_credentials(value: Any) -> Any:
    from ..sources.uris import redact_uris

    if isinstance(value, dict):
        return {key: _without_credentials(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_credentials(each) for each in value]
    return redact_uris(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if value in (None, {}, []):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _origin(where: Origin) -> dict[str, Any]:
    if isinstance(where, str):
        return {"source": where, "file": None, "line": None, "column": None}
    return {"source": "file", "file": where.file, "line": where.line, "column": where.column}
