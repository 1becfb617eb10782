"""Which session is to run, and with which bundle."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import click

from amplifier_core.errors import SessionConflict

from ..app import bundle_at, refuse_what_cannot_run, session_by_prefix, split_point

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore

    from ...bundles.model import Bundle

    Confirm = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says of the session to run: a new one, or which one to `resume` or to `fork`."""

    bundle: str | None = None
    resume: str | None = None
    fork: str | None = None
    name: str = ""
    working_dir: Path | None = None
    accept: bool = False

    def check(self) -> None:
        """Raise `click.UsageError` for what does not go together."""
        if "" in (self.resume, self.fork):  # of a variable that is not set; it must not begin a new session
            raise click.UsageError("the id of the session is empty. See: amplifier session list")
        if self.resume and self.fork:
            raise click.UsageError("--resume and --fork exclude each other")
        if self.working_dir and (self.resume or self.fork):
            raise click.UsageError("--working-dir is for a new session; a stored one goes on in its own folder")
        if self.fork:
            split_point(self.fork)


class Chosen(NamedTuple):
    """A bundle, and the stored session that goes on with it; None: a new one."""

    bundle: Bundle
    record: SessionRecord | None


async def choose(wanted: Wanted, store: SessionStore, plugins: Plugins, confirm: Confirm) -> Chosen:
    """Find what is wanted, and make the fork. Raises `SessionConflict` for a bundle that changed and nobody accepts."""
    from ...forks import fork_stored

    point = split_point(wanted.fork) if wanted.fork else None
    stored = point.session if point else wanted.resume
    record = await session_by_prefix(store, stored) if stored else None
    bundle = await _bundle(wanted, plugins, record, confirm)
    refuse_what_cannot_run(bundle, plugins)
    if record is None:
        return Chosen(bundle, None)
    if point is not None:
        name, turn, message = wanted.name, point.turn, point.message
        record = await fork_stored(store, record, turn=turn, message=message, name=name, plugins=plugins)
    elif wanted.name:
        await store.update(record.session_id, name=wanted.name)
        record = replace(record, name=wanted.name)
    return Chosen(bundle, record)


async def _bundle(wanted: Wanted, plugins: Plugins, record: SessionRecord | None, confirm: Confirm) -> Bundle:
    path = wanted.bundle
    if path is None and record is not None and record.bundle_source:
        path = record.bundle_source
    bundle = await bundle_at(path, plugins)
    if record is not None and record.bundle_digest and bundle.digest != record.bundle_digest:
        await _accept_change(path or "bundle.md", record, confirm, accept=wanted.accept)
    return bundle


async def _accept_change(path: str, record: SessionRecord, confirm: Confirm, *, accept: bool) -> None:
    """Return when it is accepted that the session goes on with another bundle. Raises `SessionConflict`."""
    changed = f"{path} is not what session {record.session_id} last ran with"
    if accept:
        click.echo(f"amplifier: {changed}; going on with it as it is now", err=True)
    elif not sys.stdin.isatty() or not await confirm(f"{changed}. Go on with it as it is now?"):
        raise SessionConflict(record.session_id, f"{changed}. Go on all the same with --accept")
