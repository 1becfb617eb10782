"""Offer `amplifier plugin`; each verb is imported when it is used."""

from __future__ import annotations

import click

from ...cli import Verbs

_VERBS = {
    "disable": ("plugins.switching:disable", "Never load a plugin or module, until it is enabled."),
    "enable": ("plugins.switching:enable", "Load a disabled plugin or module again."),
    "lock": ("plugins.locking:lock", "Pin the installed packages of plugins for this project."),
    "show": ("plugins.listing:show", "Show everything about a plugin, a module or a package."),
    "check": ("plugins.check:check", "Check installed packages against their contracts."),
    "list": ("plugins.listing:list_", "List the installed packages and the names they offer."),
    "new": ("plugins.new:new", "Write the package of a new plugin, with its tests."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def plugin() -> None:
    """Write, check, list and pin plugins and modules."""
