"""`amplifier bundle`: everything one may do with what people write; each verb is imported when it is invoked."""

from __future__ import annotations

import click

from . import Verbs

_VERBS = {
    "add": ("bundles.registering:add", "Give a bundle a name."),
    "install": ("bundles.installing:install", "Install what a bundle names and is not here."),
    "list": ("bundles.registering:list_", "List the bundles that have a name."),
    "new": ("bundles.new:new", "Begin a bundle that runs."),
    "remove": ("bundles.registering:remove", "Forget a name."),
    "schema": ("bundles.schema:schema", "Print the JSON Schema of bundle.md, for editors."),
    "show": ("bundles.showing:show", "Show what a bundle says, and where each value stands."),
    "tree": ("bundles.tree:tree", "Draw which bundles a bundle includes."),
    "update": ("bundles.updating:update", "Fetch anew what comes from elsewhere."),
    "validate": ("bundles.validating:validate", "Check bundles, and everything they name."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def bundle() -> None:
    """Make, check, read and install bundles."""
