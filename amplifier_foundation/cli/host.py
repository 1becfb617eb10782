"""Run `amplifier host`: the hosts that share a store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError, SessionConflict

from ..documents.times import format_time
from ..operations.acting import record_act
from .app import json_option, person, storage_plugins, use_inbox, yes_option
from .loops import run_async
from .numbers import NumberRange
from .output import plural, print_json, print_table, timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from amplifier_core.shared_stores import Presence, SharedStore

ENDS_WITHIN = 1800.0
"""Seconds that a drained host may take, unless told otherwise."""


class NoSharedStore(AmplifierError, LookupError):
    """The storage of the settings belongs to one host."""

    def __init__(self) -> None:
        super().__init__(
            "the storage belongs to this host alone. Several hosts share one with: amplifier config set storage.name "
            "storage-postgres; see its README"
        )


class NoSuchHost(AmplifierError, LookupError):
    """No process of the shared store is on this host."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        listed = f"There are: {', '.join(known)}" if known else "None is known"
        super().__init__(f"no host '{name}'. {listed}. See: amplifier host list")


@click.group()
def host() -> None:
    """List, drain and adopt the hosts of a shared store."""


@host.command("list", short_help="List the processes of all hosts.", epilog="Example: amplifier host list")
@json_option
@click.pass_context
def list_hosts(ctx: click.Context, as_json: bool) -> None:
    """List the processes that share the store: who leads the triggers of what, who is at work, who is unseen."""
    run_async(_list(ctx, to_json=as_json))


@host.command(short_help="Let a host finish its work, and end.", epilog="Example: amplifier host drain web1-3fa9c2d1")
@click.argument("name", metavar="HOST")
@click.option("--timeout", default=ENDS_WITHIN, show_default=True, type=NumberRange(min=0), help="Seconds to wait.")
@click.pass_context
def drain(ctx: click.Context, name: str, timeout: float) -> None:
    """Have the processes of HOST take no new work, finish what runs, and end; wait for that.

    HOST is the id of a host or of a process, or its beginning. Another host leads its triggers at once.
    """
    run_async(_drain(ctx, name, timeout))


@host.command(short_help="Take over from a host that is gone.", epilog="Example: amplifier host adopt web1-3fa9c2d1")
@click.argument("name", metavar="HOST")
@click.option("--force", is_flag=True, help="Also while it gives signs: it is known to be cut off.")
@yes_option
@click.pass_context
def adopt(ctx: click.Context, name: str, force: bool, yes: bool) -> None:
    """Take over what only HOST could do, because it is gone for good: its waiting events and its open sessions.

    Its claims are free at once, its events about files are handled on this host, and its running sessions count as
    interrupted. A host that comes back after this works on, and its old work is refused.
    """
    run_async(_adopt(ctx, name, force=force, yes=yes))


@asynccontextmanager
async def _use_shared(ctx: click.Context) -> AsyncIterator[SharedStore]:
    from ..background.hosts.sharing import shared_store

    async with use_inbox(storage_plugins(ctx)) as store:
        shared = shared_store(store)
        if shared is None:
            raise NoSharedStore
        yield shared


async def _find(store: SharedStore, name: str) -> list[Presence]:
    """Return the processes of a host, or the process, of this id. Raises `NoSuchHost`, `SessionConflict`."""
    processes = await store.processes()
    found = [each for each in processes if name in (each.host, each.process)]
    found = found or [each for each in processes if each.host.startswith(name) or each.process.startswith(name)]
    hosts = sorted({each.host for each in found})
    if not found:
        raise NoSuchHost(name, sorted({each.host for each in processes}))
    if len(hosts) > 1:
        raise SessionConflict(name, f"'{name}' begins the ids of several hosts: {', '.join(hosts)}. Write more of it")
    return found


async def _list(ctx: click.Context, *, to_json: bool) -> None:
    from ..background.hosts.people import describe_hosts

    async with _use_shared(ctx) as store:
        rows = await describe_hosts(store)
    if to_json:
        print_json("host.list/1", rows)
        return
    print_table(
        ("HOST", "PROCESS", "ROLE", "STATE", "LEADS", "AT WORK", "SEEN", "BUNDLES", "VERSION"),
        (_cells(row) for row in rows),
        empty="No process of any host is known. Start one with: amplifier up BUNDLE",
        leave_out=("VERSION", "BUNDLES", "SEEN", "PROCESS", "ROLE"),
    )


def _cells(row: dict[str, Any]) -> list[str]:
    leads, bundles = ", ".join(row["leads"]) or "-", ", ".join(row["bundles"]) or "-"
    who = [row["host"], row["process"].partition("-")[0], row["role"], row["state"], leads]
    return [*who, str(row["at_work"]), timestamp(row["seen"]), bundles, row["version"]]


async def _drain(ctx: click.Context, name: str, seconds: float) -> None:
    import asyncio

    from amplifier_core.clock import SystemClock

    from ..background.hosts.commands import send_command, withdraw
    from ..background.hosts.member import is_seen

    async with _use_shared(ctx) as store:
        now = await store.now()
        found = await _find(store, name)
        seen = [each for each in found if is_seen(each, now)]
        if not seen:
            raise SessionConflict(
                name, f"host {found[0].host} has given no sign since {format_time(found[0].seen)}: it cannot be asked. "
                f"If it is gone for good: amplifier host adopt {found[0].host}",
            )  # fmt: skip
        keys = [await send_command(store, each.process, "drain", {}) for each in seen]
        await record_act(store, person(), "host.drain", found[0].host)
        click.echo(f"Draining {plural(len(seen), 'process')} of {found[0].host} …", err=True)
        try:
            async with asyncio.timeout(seconds):
                names = {each.process for each in seen}
                while names & {each.process for each in await store.processes()}:
                    await SystemClock().sleep(0.2)
        except TimeoutError:
            raise SessionConflict(
                name, f"host {found[0].host} still works after {seconds:g} s, and goes on until its sessions end. Look "
                "at them with: amplifier ps",
            ) from None  # fmt: skip
        finally:
            for key in keys:
                await withdraw(store, key)
    click.echo(f"{found[0].host} has ended its work.", err=True)


async def _adopt(ctx: click.Context, name: str, *, force: bool, yes: bool) -> None:
    from ..background.hosts.member import is_seen
    from ..background.hosts.people import adopt_host, open_sessions_of
    from ..sessions.presence import this_host
    from .app import confirm

    async with _use_shared(ctx) as store:
        try:
            found = await _find(store, name)
        except NoSuchHost:
            if not await open_sessions_of(store, name):  # a host may have had conversations alone
                raise
            found = []
        host = found[0].host if found else name
        if host == this_host():
            raise SessionConflict(name, "that is this host: its own `amplifier up` takes its work up")
        now = await store.now()
        if not force and any(is_seen(each, now) for each in found):
            raise SessionConflict(
                name, f"host {host} gives signs: it works. End it with: amplifier host drain {host}; "
                "if it is known to be cut off: --force",
            )  # fmt: skip
        confirm(f"Take over the work of {host}? It must be gone for good.", yes=yes)
        adopted = await adopt_host(store, host, this_host())
        await record_act(store, person(), "host.adopt", host, adopted=adopted)
    click.echo(f"Adopted {adopted}.", err=True)
