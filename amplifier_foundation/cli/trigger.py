"""`amplifier trigger`: what wakes the background sessions of a bundle; each verb is imported when it is invoked."""

from __future__ import annotations

import click

from . import Verbs

_VERBS = {
    "fire": ("triggers.firing:fire", "Wake a background session by hand."),
    "list": ("triggers.listing:list_", "List what wakes each background session."),
    "simulate": ("triggers.simulate:simulate", "Show when timers will fire."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def trigger() -> None:
    """See triggers, and fire by hand."""
