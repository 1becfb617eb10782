"""`amplifier bundle list`, `add` and `remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import BundleNotFoundError, SessionConflict

from ..app import json_option, plugins_of, run_async, settings_here
from ..output import print_json, print_table

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins

    from ...bundles.registry import BundleRegistry, BundleState


@click.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the bundles that have a name here, and who named them: you, a package, or the settings."""
    rows = _rows(plugins_of(ctx))
    if as_json:
        print_json("bundle.list/1", rows)
        return
    print_table(
        ("NAME", "FROM", "VERSION", "LOADED", "PLACE"),
        ([row["name"], row["from"], row["version"], row["loaded_at"], row["uri"]] for row in rows),
        empty="No bundle has a name here. Give one: amplifier bundle add NAME BUNDLE",
    )


def _rows(plugins: Plugins) -> list[dict[str, str]]:
    """Return every name, sorted, with what is known of it; settings win over registered names, those over packages'."""
    from ...bundles.registry import BundleRegistry
    from ...sources import shown

    registry = BundleRegistry(plugins=plugins)
    rows = {name: _row(name, place, _owner(plugins, name)) for name, place in registry.offered().items()}
    rows |= {name: _registered(state) for name, state in _states(registry).items()}
    rows |= {name: _row(name, place, "settings") for name, place in settings_here().get("bundles").items()}
    return [{**row, "uri": shown(row["uri"])} for _, row in sorted(rows.items())]


def _states(registry: BundleRegistry) -> dict[str, BundleState]:
    states: Any = registry.get_state()
    return dict(states)


def _row(name: str, uri: str, whose: str, version: str = "", loaded_at: str = "") -> dict[str, str]:
    return {"name": name, "from": whose, "version": version, "loaded_at": loaded_at, "uri": str(uri)}


def _registered(state: BundleState) -> dict[str, str]:
    return _row(state.name, state.uri, "you", state.version, state.loaded_at)


def _owner(plugins: Plugins, name: str) -> str:
    return next((row.owner for row in plugins.rows if name in row.offers), "?")


@click.command()
@click.argument("name")
@click.argument("bundle")
@json_option
@click.pass_context
def add(ctx: click.Context, name: str, bundle: str, as_json: bool) -> None:
    """Have NAME stand for BUNDLE, a file, folder or URL, which is loaded once to see that it is one.

    It is then `-b NAME`, `- bundle: NAME` in includes, and `NAME:path` for what lies in it.
    """
    state = run_async(_added(plugins_of(ctx), name, bundle))
    if as_json:
        print_json("bundle.add/1", _registered(state))
    else:
        click.echo(f"{name}: {state.uri}, version {state.version}")


async def _added(plugins: Plugins, name: str, bundle: str) -> BundleState:
    from ...bundles.registry import BundleRegistry
    from ...bundles.secrets import is_secret

    if is_secret(bundle):
        raise click.UsageError("no secret is written down: leave the password out, and let git or the keyring know it")
    registry = BundleRegistry(plugins=plugins)
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
    return _states(registry)[name]


@click.command()
@click.argument("name")
@json_option
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Forget NAME; the bundle itself stays where it is."""
    from ...bundles.problems import did_you_mean
    from ...bundles.registry import BundleRegistry

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
        click.echo(f"{name}: removed")
