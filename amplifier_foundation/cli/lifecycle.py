"""Run `amplifier start`, `restart`, `pause` and `resume`: the life of one background session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .changing import ChangedBeforeUp, change_background_session
from .completing import complete_background_sessions

if TYPE_CHECKING:
    from ..operations.running import Verb


@click.command(epilog="Example: amplifier start reviewer")
@click.argument("name", shell_complete=complete_background_sessions)
def start(name: str) -> None:
    """Start the background session NAME, after a stop or for the first time; it also starts with the next `up`.

    While nothing runs this folder, one of the bundle here starts with the next `up`.
    """
    _change("start", name, "runs")


@click.command(epilog="Example: amplifier restart reviewer")
@click.argument("name", shell_complete=complete_background_sessions)
def restart(name: str) -> None:
    """Stop the background session NAME and start it anew; running sessions may finish."""
    _change("restart", name, "runs")


@click.command(epilog="Example: amplifier pause reviewer")
@click.argument("name", shell_complete=complete_background_sessions)
def pause(name: str) -> None:
    """Pause the background session NAME: it accepts events and handles none, until `amplifier resume NAME`.

    While nothing runs this folder, one of the bundle here is paused from its next start on.
    """
    _change("pause", name, "is paused")


@click.command(epilog="Example: amplifier resume reviewer")
@click.argument("name", shell_complete=complete_background_sessions)
def resume(name: str) -> None:
    """Resume the background session NAME after a pause; its waiting events are handled.

    While nothing runs this folder, they are handled from the next start on.
    """
    _change("resume", name, "is resumed")


def _change(verb: Verb, name: str, result: str) -> None:
    for changed in change_background_session(verb, name):
        is_later = verb == "start" and isinstance(changed, ChangedBeforeUp)
        told = "starts with the next: amplifier up" if is_later else result
        click.echo(f"{changed.queue} {told}", err=True)
