"""`amplifier stop`: end one background session, or the process that runs them."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import click

from amplifier_core.errors import SessionConflict

from .app import run_async

TIMEOUT = 15.0
"""Seconds after which sessions at work are interrupted; they get 10 seconds from the process itself."""
LATE = 5.0
"""Seconds after which somebody who waits is told what for."""
LOOK_EVERY = 0.05


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="End the process that runs them, and wait until it has ended.")
@click.option(
    "--timeout",
    default=TIMEOUT,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds after which sessions at work are interrupted; the next start goes on with them.",
)
def stop(name: str | None, everything: bool, timeout: float) -> None:
    """Stop the background session NAME (or its id), or with --all everything; sessions at work may finish."""
    if (name is None) != everything:
        raise click.UsageError("say which background session, or --all; see them with: amplifier ps")
    run_async(_stop_all(timeout) if name is None else _stop_one(name))


def _owner() -> dict[str, Any]:
    from ..control import NothingRuns
    from ..lock import running_owner

    owner = running_owner()
    if owner is None:
        raise NothingRuns
    return owner


async def _stop_one(name: str) -> None:
    from ..background.lane import lane_key
    from ..control import PATIENCE, NoSuchBackgroundSession, ask

    owner = _owner()
    running = {
        session_id: (each["bundle"], row["name"])
        for each in await ask(owner, "status")
        for session_id, row in each["sessions"].items()
    }
    if not any(name in (session_id, own, lane_key(bundle, own)) for session_id, (bundle, own) in running.items()):
        raise NoSuchBackgroundSession(name, [own for _, own in running.values()])
    for session_id in await ask(owner, "stop", patience=PATIENCE, name=name):
        click.echo(f"{'/'.join(running.get(session_id, (session_id,)))} is stopped", err=True)
    click.echo("It runs again when its bundle changes, and at the next: amplifier up", err=True)


async def _stop_all(patience: float) -> None:
    from ..control import ask

    owner = _owner()
    pid = int(owner["pid"])
    try:
        await ask(owner, "stop")
    except SessionConflict:  # it does not answer: it has not started, or ends already
        _signal(pid)
    if not await _gone(pid, min(LATE, patience)):
        click.echo(f"amplifier: process {pid} lets sessions at work finish{await _at_work(owner)}", err=True)
        if not await _gone(pid, max(0.0, patience - LATE)):
            click.echo(f"amplifier: {patience:g} s are over; what is at work is interrupted", err=True)
            _signal(pid)
            if not await _gone(pid, TIMEOUT):
                raise SessionConflict(str(pid), f"process {pid} does not end. End it with: kill -9 {pid}")
    click.echo(f"Process {pid} has ended.", err=True)


def _signal(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


async def _gone(pid: int, seconds: float) -> bool:
    """Return whether process `pid` owns the data folder no more, within so many seconds."""
    from ..lock import running_owner

    ends = asyncio.get_running_loop().time() + seconds
    while (running_owner() or {}).get("pid") == pid:
        if asyncio.get_running_loop().time() >= ends:
            return False
        await asyncio.sleep(LOOK_EVERY)
    return True


async def _at_work(owner: dict[str, Any]) -> str:
    from ..control import ask

    try:
        answer = await ask(owner, "status")
    except SessionConflict:
        return ""
    ids = [session_id for each in answer for row in each["sessions"].values() for session_id in row["running"]]
    return f": {', '.join(ids)}" if ids else ""
