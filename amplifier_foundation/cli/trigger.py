"""`amplifier trigger`: what wakes the background sessions of a bundle; each verb is imported when it is invoked."""

from __future__ import annotations

import click

from . import Verbs

_VERBS = {
    "dead": ("triggers.letters:dead", "List the events that were given up."),
    "drop": ("triggers.letters:drop", "Have events that were given up, or wait, not be handled."),
    "fire": ("triggers.firing:fire", "Wake a background session by hand."),
    "list": ("triggers.listing:list_", "List what wakes each background session."),
    "retry": ("triggers.letters:retry", "Have events that were given up handled after all."),
    "simulate": ("triggers.simulate:simulate", "Show when timers will fire."),
    "test": ("triggers.testing:test", "Tell which background sessions an event would wake."),
    "watch": ("triggers.watching:watch", "Show what would wake a background session, as it comes."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def trigger() -> None:
    """See triggers and what they would do, fire by hand, and see to what was given up."""
