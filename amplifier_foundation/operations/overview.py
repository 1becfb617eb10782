"""Read what runs: the processes, the hosts, and the background sessions with the counts of their queues.

A background session is a row: a mapping with the keys of `columns.COLUMNS`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, SessionConflict
from amplifier_core.frozen import frozen
from amplifier_core.ids import host_of
from amplifier_core.utils.secrets import redact_text

from ..background.keys import RUNS
from ..background.lifecycle import read_wish
from ..documents.times import format_time
from ..sessions.store_views import views_of
from .columns import Row, add_counts, forget_counts, new_row
from .running import list_running

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.errors import StoreError
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore

    from ..background.undeclared import UndeclaredQueue
    from ..bundle.model import Bundle
    from .running import Running

Rows = dict[tuple[str, str], Row]
"""Rows by project and queue."""


_SILENT = "unknown"
"""The state of what a process without an answer may run."""
_REASONS_TO_SHOW = ("pid", "hosts", "waiting", "at_work", "dead")


@frozen
class Overview:
    """What runs, as `amplifier ps --json` shows it."""

    processes: list[dict[str, Any]]
    """The facts of each process of this host, with a `problem` when it does not answer."""
    hosts: list[dict[str, Any]]
    """The processes of a shared store."""
    background_sessions: list[Row]
    """By project and queue: all, or those that run or may run, and those with waiting or dead events."""


@frozen
class Processes:
    """The processes of this host, and the background sessions that they run."""

    owners: list[dict[str, Any]]
    running: list[tuple[dict[str, Any], Running]]

    def rows(self) -> Rows:
        """Return a new row for each background session."""
        rows: Rows = {}
        for owner, (key, session_id, status) in self.running:
            facts = {"state": status["status"], "restarts": status["restart_count"]}
            facts |= {name: status.get(name) for name in ("reason", "next_try", "postponed")}
            rows[key] = new_row(*key, id=session_id, pid=owner["pid"], **facts)
        return rows

    def overview(self, rows: Rows, hosts: list[dict[str, Any]], *, everything: bool = False) -> Overview:
        """Return the overview with the rows that a person wants to see, or with all."""
        silent = {project for owner in self.owners if "problem" in owner for project in owner.get("projects") or ()}
        for row in rows.values():
            row["state"] = _SILENT if row["project"] in silent else row["state"]
        shown = [
            row
            for _, row in sorted(rows.items())
            if everything or row["state"] == _SILENT or any(row[key] for key in _REASONS_TO_SHOW)
        ]
        return Overview(self.owners, hosts, shown)


def ask_processes() -> Processes:
    """Ask the processes of this data folder what they run; one that does not answer gets a `problem`. Blocks."""
    from ..sessions.lock import running_owners

    owners = running_owners()
    running: list[tuple[dict[str, Any], Running]] = []
    for owner in owners:
        try:
            running += [(owner, each) for each in list_running(owner)]
        except SessionConflict as error:
            owner["problem"] = str(error)
    return Processes(owners, running)


async def read_overview(store: DurableStore, processes: Processes, *, everything: bool = False) -> Overview:
    """Return what runs, with the counts of the store; with `everything`, all that has ever run. Raises `StoreError`."""
    rows = processes.rows()
    hosts = await _add_hosts(store, rows)
    for counted in [each for each in await store.delivery_counts() if each.queue != RUNS]:
        add_counts(_row_of(rows, counted.project, counted.queue), counted)
    claimed = await views_of(store).delivery_page(states=["claimed"], limit=1_000)
    for each in [each for each in claimed if each.queue != RUNS]:
        work = {"session_id": each.session_id, "since": format_time(each.updated), "host": _host_of(each)}
        _row_of(rows, each.project, each.queue)["at_work"].append(work)
    is_shared = hasattr(store, "fenced")  # a process of another host may have postponed some
    for key, row in rows.items():
        has_none = not is_shared and row["state"] == "running" and not row["postponed"]  # so says its process
        row.update({"postponed": 0} if has_none or not row["waiting"] else await read_postponed(store, *key))
        if row["waiting"] and row["state"] == "not running" and await read_wish(store, *key) == "paused":
            row["reason"] = "paused"
    if any(row["waiting"] for row in rows.values()):
        from .approvals import read_approvals

        for approval in await read_approvals(store):
            if approval.state == "pending" and approval.queue != RUNS:
                _row_of(rows, approval.project, approval.queue)["approvals"].append(approval.id)
    return processes.overview(rows, hosts, everything=everything)


async def read_undeclared(
    store: DurableStore, load_plugins: Callable[[], Plugins], overview: Overview
) -> list[UndeclaredQueue]:
    """Return the queues of an overview that nothing runs and whose events wait in vain.

    Their bundle does not declare the background session any more, or their folder is gone. Bundles are only loaded for
    queues that nothing runs and whose bundle has run; one that cannot be loaded tells nothing. Blocks on their files.
    Raises `StoreError`.
    """
    idle = [row for row in overview.background_sessions if row["waiting"] and row["state"] == "not running"]
    if not idle:
        return []
    from ..background.undeclared import find_stranded, find_undeclared, source_of

    places = {(row["project"], row["queue"]) for row in idle}
    stranded = [each for each in await find_stranded(store) if (each.project, each.queue) in places]
    sources = {(row["project"], await source_of(store, row["project"], row["queue"])) for row in idle}
    known = sorted((project, source) for project, source in sources if source)
    if not known:
        return stranded
    from .loading import load_to_look, read_trusted_settings

    plugins = load_plugins()
    bundles: list[tuple[Bundle, str]] = []
    for project, source in known:
        with suppress(AmplifierError, OSError):
            settings, _ = read_trusted_settings(Path(project))
            bundles.append((load_to_look(source, plugins, settings, Path(project)), project))
    return [*await find_undeclared(store, bundles), *stranded]


def overview_without_store(processes: Processes, failure: StoreError) -> Overview:
    """Return what runs when the store cannot be read: the counts are None."""
    rows = processes.rows()
    for row in rows.values():
        forget_counts(row)
        if row["state"] == "running":
            row["state"], row["reason"] = "degraded", str(failure)
    return processes.overview(rows, [])


async def read_postponed(store: DurableStore, project: str, queue: str) -> dict[str, Any]:
    """Return how many events wait for a budget, a key or a plugin, with the time and the reason of the first due.

    Where the whole queue waits, as for its folder or an outage, all its events count, and the time may be None. The
    keys are those of a row of `ps`. Raises `StoreError`.
    """
    from ..background.giving_back import due_of, is_postponed, plain_reason, waits_with_queue

    page = await views_of(store).delivery_page(project=project, queue=queue, states=["pending"], limit=1_000)
    postponed = [each for each in page if is_postponed(each)]
    if not postponed:
        return {"postponed": 0}
    first = min(postponed, key=lambda each: each.available_at)
    count, due = len(page if waits_with_queue(first) else postponed), due_of(first)
    until = format_time(due) if due is not None else None
    return {"postponed": count, "postponed_until": until, "postponed_reason": redact_text(plain_reason(first))}


async def _add_hosts(store: DurableStore, rows: Rows) -> list[dict[str, Any]]:
    """Add what the processes of a shared store run, where no process here does; return these processes."""
    if not hasattr(store, "fenced"):  # the store of one host
        return []
    from ..background.hosts.people import describe_hosts
    from ..background.hosts.sharing import shared_store

    shared = shared_store(store)
    hosts = await describe_hosts(shared) if shared is not None else []
    for each in hosts:
        for project, queues in (each["states"] if each["state"] != "unseen" else {}).items():
            for queue, (state, reason) in queues.items():
                row = _row_of(rows, project, queue)
                row["hosts"].append(each["host"])
                if row["state"] == "not running" and each["role"] == "up":
                    row.update(state=state, reason=reason)
    return hosts


def _host_of(delivery: Delivery) -> str | None:
    """Return the host of a claimed delivery; None for a store of one host."""
    from ..background.hosts.people import last_owner

    return host_of(last_owner(delivery)) or None if hasattr(delivery, "owners") else None


def _row_of(rows: Rows, project: str, queue: str) -> Row:
    return rows.setdefault((project, queue), new_row(project, queue))
