"""Run `amplifier stop`: stop one background session, or the process of all."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

import click

from amplifier_core.errors import SessionConflict

from ..operations.running import list_running
from .app import project_here
from .changing import change_background_session, record_stop
from .completing import complete_background_sessions
from .numbers import NumberRange

TIMEOUT = 15.0
"""Seconds before running sessions are interrupted; the process itself gives them 10."""
LATE = 5.0
"""Seconds before a person is told the cause of the wait."""
LOOK_EVERY = 0.05


@click.command(epilog="Example: amplifier stop reviewer")
@click.argument("name", required=False, shell_complete=complete_background_sessions)
@click.option("--all", "here", is_flag=True, help="Stop the process of this folder's background sessions, and wait.")
@click.option("--everything", is_flag=True, help="Stop the processes of all folders, and wait.")
@click.option(
    "--timeout",
    default=TIMEOUT,
    show_default=True,
    type=NumberRange(min=0),
    help="Seconds before running sessions are interrupted; the next `amplifier up` continues them.",
)
def stop(name: str | None, here: bool, everything: bool, timeout: float) -> None:
    """Stop the background session NAME (or its id); with --all, all of this folder; running sessions may finish."""
    from ..background.asking import NothingRuns
    from ..paths import find_absence
    from ..sessions.lock import forget_killed, running_owner, running_owners

    if [name is not None, here, everything].count(True) != 1:
        raise click.UsageError("name a background session, or use --all or --everything; list them with: amplifier ps")
    if name is not None:
        for changed in change_background_session("stop", name):
            click.echo(f"{changed.queue} is stopped", err=True)
        click.echo(f"It stays stopped until: amplifier start {name}", err=True)
        return
    owners = running_owners()
    killed = forget_killed(None if everything else project_here())
    for each in killed:
        click.echo(f"Process {each['pid']} had been killed.", err=True)
    if not owners:
        if killed:
            return
        raise NothingRuns
    if here:
        owner = running_owner(project_here())
        if owner is None and killed:
            return
        if owner is None:
            pids = {str(each): owner["pid"] for owner in owners for each in owner.get("projects") or ()}
            away = {folder: absence for folder in sorted(pids) if (absence := find_absence(folder))}
            there = ", ".join(sorted(pids.keys() - away.keys()))
            text = f"nothing runs in this folder, but in: {there}. Go there, or use --everything"
            if away:
                text = text if there else "nothing runs in this folder"
                for folder, absence in away.items():
                    pid = pids[folder]
                    text = f"{text}. The folder {folder} of process {pid} {absence}; end that one with: kill {pid}"
            raise SessionConflict(project_here(), text)
        owners = [owner]
    for owner in owners:
        _stop_all(owner, timeout)


def _stop_all(owner: dict[str, Any], patience: float) -> None:
    """Ask the process to stop; interrupt running sessions after `patience` seconds. Raises `SessionConflict`."""
    from ..background.asking import ask

    pid = int(owner["pid"])
    try:
        ask(owner, "stop")
    except SessionConflict:  # no answer: it is starting, or ending already
        _terminate(owner)
    if not _wait_for_end(owner, min(LATE, patience)):
        ids: list[str] = []
        with suppress(SessionConflict):
            ids = [session_id for _, _, row in list_running(owner) for session_id in row["running"]]
        listed = f": {', '.join(ids)}" if ids else ""
        click.echo(f"amplifier: process {pid} waits for running sessions{listed}", err=True)
        if not _wait_for_end(owner, max(0.0, patience - LATE)):
            click.echo(f"amplifier: interrupting running sessions after {patience:g} s", err=True)
            _terminate(owner)
            if not _wait_for_end(owner, TIMEOUT):
                raise SessionConflict(str(pid), f"process {pid} does not end. End it with: kill -9 {pid}")
    click.echo(f"Process {pid} has ended.", err=True)
    record_stop(owner)


def _terminate(owner: dict[str, Any]) -> None:
    """Signal the owner's process. Raises `SessionConflict` if the one with its number is another one."""
    from ..sessions.lock import is_missing, missing_conflict

    if not is_missing(owner):
        with suppress(ProcessLookupError):
            os.kill(int(owner["pid"]), signal.SIGTERM)
    elif not _wait_for_end(owner, 0):
        raise missing_conflict(owner)


def _wait_for_end(owner: dict[str, Any], seconds: float) -> bool:
    """Return whether the process gives up its folders within so many seconds."""
    from ..sessions.lock import owner_key, running_owners

    ends = time.monotonic() + seconds
    while any(owner_key(each) == owner_key(owner) for each in running_owners()):
        if time.monotonic() >= ends:
            return False
        time.sleep(LOOK_EVERY)
    return True
