"""Offer `amplifier bundle`; each verb is imported when it is used."""

from __future__ import annotations

import click

from ...cli import Verbs

_VERBS = {
    "add": ("bundles.registering:add", "Register a name for a bundle."),
    "explain": ("bundles.explaining:explain", "Explain a key of a bundle, with an example."),
    "import": ("bundles.importing:import_", "Make a bundle of an agent, a plugin or a .claude folder."),
    "install": ("bundles.installing:install", "Install the missing packages of a bundle."),
    "list": ("bundles.registering:list_", "List the named bundles."),
    "new": ("bundles.new:new", "Write a bundle.md to begin with."),
    "remove": ("bundles.registering:remove", "Remove a registered name."),
    "schema": ("bundles.schema:schema", "Print the JSON Schema of bundle.md, for editors."),
    "show": ("bundles.showing:show", "Show every value of a bundle and its file and line."),
    "tree": ("bundles.showing:tree", "Show the bundles that a bundle includes."),
    "update": ("bundles.updating:update", "Fetch remote bundles again."),
    "validate": ("bundles.validating:validate", "Check bundles and everything they name."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def bundle() -> None:
    """Create, check, read and install bundles."""
