"""Run `amplifier bundle list`, `add` and `remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleNotFoundError, SessionConflict

from ...documents.safe_text import plain_line
from ..app import json_option, plugins_of, read_settings_here
from ..loops import run_in_loop
from ..output import print_json, print_table

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

    from ...bundle.registry import BundleRegistry, BundleState


@click.command("list", epilog="Example: amplifier bundle list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the bundles with a name: registered by you, offered by a package, or set in the settings."""
    rows = _rows(plugins_of(ctx))
    if as_json:
        print_json("bundle.list/1", rows)
        return
    print_table(
        ("NAME", "FROM", "VERSION", "LOADED", "PLACE"),
        ([row["name"], row["from"], row["version"], row["loaded_at"], row["uri"]] for row in rows),
        empty="No bundle has a name here. Register one: amplifier bundle add NAME BUNDLE",
        shrink=("PLACE",),
        leave_out=("LOADED", "VERSION", "FROM", "PLACE"),
    )


def _rows(plugins: Plugins) -> list[dict[str, str]]:
    """Return a row for each name, sorted; settings win over registered names, those win over packages."""
    from ...bundle.registry import BundleRegistry
    from ...sources import redact_uris

    registry = BundleRegistry(plugins=plugins)
    rows = {}
    for name, place in registry.names_of_packages().items():
        owner = next((row.owner for row in plugins.rows if name in row.offers), "?")
        rows[name] = _row(name, place, owner)
    rows |= {name: _registered_row(state) for name, state in _states(registry).items()}
    rows |= {name: _row(name, place, "settings") for name, place in read_settings_here().get("bundles").items()}
    return [{**row, "uri": redact_uris(row["uri"])} for _, row in sorted(rows.items())]


def _states(registry: BundleRegistry) -> dict[str, BundleState]:
    states: Any = registry.get_state()
    return dict(states)


def _row(name: str, uri: str, whose: str, version: str = "", loaded_at: str = "") -> dict[str, str]:
    return {"name": name, "from": whose, "version": version, "loaded_at": loaded_at, "uri": str(uri)}


def _registered_row(state: BundleState) -> dict[str, str]:
    return _row(state.name, state.uri, "you", state.version, state.loaded_at)


@click.command(epilog="Example: amplifier bundle add team ./team")
@click.argument("name")
@click.argument("bundle")
@json_option
@click.pass_context
@run_in_loop
async def add(ctx: click.Context, name: str, bundle: str, as_json: bool) -> None:
    """Register NAME for BUNDLE, a file, folder or URL; the bundle is loaded once to check it.

    Use it as `-b NAME`, as `- bundle: NAME` in includes, and as `NAME:path` for its files.
    """
    from amplifier_core.utils.secrets import holds_key

    from ...bundle.registry import BundleRegistry

    if holds_key(bundle):
        raise click.UsageError("secrets are never stored: leave the password out, and give it to git or the keyring")
    registry = BundleRegistry(plugins=plugins_of(ctx))
    before = _states(registry).get(name)
    try:
        registry.register({name: bundle})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    state = _states(registry)[name]
    if before is not None and before.uri != state.uri:
        raise SessionConflict(name, f"'{name}' stands for {before.uri}. First: amplifier bundle remove {name}")
    await registry.load(name)
    registry.save()
    state = _states(registry)[name]
    if as_json:
        print_json("bundle.add/1", _registered_row(state))
    else:
        click.echo(plain_line(f"{name}: {state.uri}, version {state.version}"))


@click.command(epilog="Example: amplifier bundle remove team")
@click.argument("name")
@json_option
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Remove the registered NAME; the bundle itself stays."""
    from ...bundle.registry import BundleRegistry
    from ...documents.problems import did_you_mean

    plugins = plugins_of(ctx)
    registry = BundleRegistry(plugins=plugins)
    if not registry.unregister(name):
        whose = {row["name"]: row["from"] for row in _rows(plugins)}.get(name)
        hint = f": it comes from {whose}" if whose else did_you_mean(name, _states(registry)) or "."
        raise BundleNotFoundError(f"you have registered no bundle '{name}'{hint} See: amplifier bundle list")
    registry.save()
    if as_json:
        print_json("bundle.remove/1", {"name": name})
    else:
        click.echo(plain_line(f"{name}: removed"))
