"""Choose the session and the bundle of a run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from amplifier_core.errors import SessionConflict
from amplifier_core.frozen import frozen

from ...sessions.held import held_of
from ..app import (
    find_own_bundle,
    find_session,
    load_bundle_at,
    person,
    read_settings_here,
    require_runnable,
    split_point,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore

    from ...bundle.model import Bundle
    from ..trusting import Asking

    Confirm = Callable[[str], Awaitable[bool]]


@frozen
class Wanted:
    """The session named on the command line: a new one, or one to `resume` or `fork`."""

    bundle: str | None = None
    resume: str | None = None
    fork: str | None = None
    name: str = ""
    working_dir: Path | None = None
    accept: bool = False
    provider: str | None = None
    model: str | None = None
    record: Path | None = None
    trusts: bool = False

    def check(self) -> None:
        """Raise `click.UsageError` for options that exclude each other."""
        if "" in (self.resume, self.fork):  # an unset shell variable must not start a new session
            raise click.UsageError("the id of the session is empty. See: amplifier session list")
        if self.resume and self.fork:
            raise click.UsageError("--resume and --fork exclude each other")
        if self.working_dir and (self.resume or self.fork):
            raise click.UsageError("--working-dir is for a new session; a stored one continues in its own folder")
        if self.record and self.fork:
            raise click.UsageError("--record and --fork exclude each other: a recording begins with its session")
        if self.fork:
            split_point(self.fork)


class Chosen(NamedTuple):
    """A bundle, and the stored session to continue with it; None: a new one."""

    bundle: Bundle
    record: SessionRecord | None


async def choose(
    wanted: Wanted, store: SessionStore, plugins: Plugins, confirm: Confirm, asking: Asking | None = None
) -> Chosen:
    """Find the session and its bundle; make the fork.

    Raises `SessionConflict` when a changed bundle is refused, or a program made the session's, and `NotTrusted`.
    """
    from ...operations.sessions import fork_session
    from ...sessions.runs import refuse_run
    from ...spawning.opening import is_fileless, refuse_fileless

    point = split_point(wanted.fork) if wanted.fork else None
    stored = point.session if point else wanted.resume
    record = await find_session(store, stored) if stored else None
    if record is not None:
        refuse_run(record)
    if record is not None and point is None and held_of(record.metadata):
        await _refuse_waiting(record, store)
    if record is not None and not wanted.bundle:
        refuse_fileless(record)
    path = wanted.bundle or (record.bundle_source if record is not None else None) or None
    if path or find_own_bundle(read_settings_here()):
        bundle = await load_bundle_at(path, plugins, asking=asking)
        prefer(bundle, wanted)
    else:
        bundle = make_bundle(wanted, record)
    known = record.bundle_digest if record is not None and not is_fileless(record) else ""
    if record is not None and known and bundle.digest != known:
        changed = f"{path or 'bundle.md'} has changed since session {record.session_id} last ran"
        if wanted.accept:
            click.echo(f"amplifier: {changed}; continuing with its present version", err=True)
        elif not sys.stdin.isatty() or not await confirm(f"{changed}. Continue with its present version?"):
            raise SessionConflict(record.session_id, f"{changed}. Continue with its present version with --accept")
    require_runnable(bundle, plugins)
    if record is None:
        return Chosen(bundle, None)
    if point is not None:
        record, _ = await fork_session(store, person(), record, point, name=wanted.name, plugins=plugins)
    elif wanted.name:
        await store.update(record.session_id, name=wanted.name)
        record = replace(record, name=wanted.name)
    return Chosen(bundle, record)


async def _refuse_waiting(record: SessionRecord, store: SessionStore) -> None:
    """Raise `SessionConflict` with the approval that a session waits for, where the store knows it."""
    from amplifier_core.storage import DurableStore

    from ...background.approvals import read_all

    if not isinstance(store, DurableStore):
        return
    for each in await read_all(store):
        sessions = {each.session_id, *(one.session_id for one in await store.find_deliveries(each.delivery_id))}
        if each.state == "pending" and record.session_id in sessions:
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' waits for your approval of a tool call. Answer: amplifier approvals "
                f"show {each.id}; or go on with a fork of it: amplifier run --fork {record.session_id}",
            )


def prefer(bundle: Bundle, wanted: Wanted) -> None:
    """Prefer the provider and the model of the command line in a bundle; the settings hold for an added provider, too.

    Raises `ProviderMissing`.
    """
    if wanted.provider or wanted.model:
        from ...bundle import preferring
        from ...bundle.overrides import override_entry

        known = len(bundle.providers)
        preferring.prefer(bundle, wanted.provider, wanted.model)
        for entry in bundle.providers[known:]:
            override_entry(bundle, entry, read_settings_here().get("overrides"), Path.cwd())


def make_bundle(wanted: Wanted, record: SessionRecord | None) -> Bundle:
    """Return the bundle of `amplifier init` for a folder without one, or that of a stored session once more.

    A line on stderr says which provider it has and why. Raises `ProviderMissing`.
    """
    from ...bundle.first_provider import PLAYBOOK, Choice, choose_provider
    from ...bundle.names import is_bundle_name
    from ...bundle.overrides import override_modules
    from ...bundle.starter import first_bundle

    providers = record.config.get("providers") if record is not None else None
    if record is not None and providers:
        choice = Choice(str(providers[0]["module"]), dict(providers[0].get("config") or {}), "")
        bundle = first_bundle(record.bundle, choice, Path(record.project))
        prefer(bundle, wanted)
        return bundle
    folder = (wanted.working_dir or Path()).absolute()
    choice = choose_provider(wanted.provider, wanted.model)
    if not click.get_current_context().obj["quiet"]:
        remedy = "A model needs: amplifier auth login" if choice.module == PLAYBOOK else "Keep it: amplifier init"
        first = f"no bundle.md here, so {choice.module} answers: {choice.reason}. {remedy}"
        for line in (first, *choice.remarks):
            click.echo(f"amplifier: {line}", err=True)
    bundle = first_bundle(folder.name if is_bundle_name(folder.name) else "session", choice, folder)
    override_modules(bundle, read_settings_here().get("overrides"), Path.cwd())
    if wanted.model:
        bundle.providers[0]["config"]["default_model"] = wanted.model
    return bundle
