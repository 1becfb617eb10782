"""Offer `amplifier plugin`; each verb is imported when it is used."""

from __future__ import annotations

import click

from ...cli import Verbs

_VERBS = {
    "check": ("plugins.check:check", "Check installed packages against their contracts."),
    "list": ("plugins.listing:list_", "List the installed packages and the names they offer."),
    "new": ("plugins.new:new", "Write the package of a new plugin, with its tests."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def plugin() -> None:
    """Write, check, list and pin plugins and modules."""
