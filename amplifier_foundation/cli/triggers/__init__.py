"""Offer `amplifier trigger`; each verb is imported when it is used."""

from __future__ import annotations

import click

from ...cli import Verbs

_VERBS = {
    "dead": ("triggers.dead_letters:dead", "List dead letters: events that failed every attempt."),
    "drop": ("triggers.dead_letters:drop", "Discard dead or waiting events."),
    "fire": ("triggers.firing:fire", "Wake a background session by hand."),
    "list": ("triggers.listing:list_", "List the triggers of each background session."),
    "retry": ("triggers.dead_letters:retry", "Try dead letters again."),
    "simulate": ("triggers.simulate:simulate", "Show when timers will fire."),
    "test": ("triggers.testing:test", "Show which background sessions an event would wake."),
    "watch": ("triggers.watching:watch", "Show events as they come, and run nothing."),
}


@click.group(cls=Verbs, lazy=_VERBS)
def trigger() -> None:
    """List, test and fire triggers, and handle dead letters."""
