"""Tell people about the hosts of a shared store, and do what they ask of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import SystemClock
from amplifier_core.ids import host_of

from ...sessions.presence import KEY
from .commands import send_command, take_answer, withdraw
from .member import is_seen
from .sharing import shared_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from amplifier_core.shared_stores import Presence, SharedStore
    from amplifier_core.storage import SessionRecord

logger = logging.getLogger(__name__)

PATIENCE = 35.0
"""Seconds for the answer of another host; a background session may end its work before it stops."""
SOON = 5.0
"""Seconds for the answers of further hosts, when one has done what holds on all."""
LOOK_EVERY = 0.1
"""Seconds between two looks for an answer."""


async def describe_hosts(store: SharedStore) -> list[dict[str, Any]]:
    """Return a row for each process, with its work; its `state` is `present`, `draining` or `unseen`."""
    now, leases = await store.now(), await store.leases()
    at_work = Counter(last_owner(each) for each in await store.deliveries(state="claimed", limit=100_000))
    rows = []
    for each in await store.processes():
        state = "unseen" if not is_seen(each, now) else "draining" if each.facts.get("draining") else "present"
        leads = [lease.name.removeprefix("triggers of ") for lease in leases if lease.owner == each.process]
        facts = {name: each.facts.get(name) for name in ("name", "pid", "version", "role", "projects", "draining")}
        facts["states"] = each.facts.get("states") or {}
        row = {"host": each.host, "process": each.process, **facts, "bundles": sorted(each.facts.get("bundles") or ())}
        row |= {"state": state, "leads": leads, "at_work": at_work[each.process]}
        rows.append({**row, "started": each.started, "seen": each.seen})
    return rows


def last_owner(delivery: Any) -> str:
    """Return the process that claimed a delivery last, '' where the store does not tell."""
    owners: Sequence[str] = getattr(delivery, "owners", ())
    return owners[-1] if owners else ""


async def adopt_host(store: SharedStore, host: str, by: str) -> str:
    """Give the work of a host that is gone to the host `by`; return in words what that was."""
    gone = [each for each in await store.processes() if each.host == host]
    projects = {project for each in gone for project in each.facts.get("projects") or ()}
    freed = sum([await store.release(each, owners=[one.process for one in gone]) for each in sorted(projects)])
    waiting = await store.adopt(host, by)
    sessions = await open_sessions_of(store, host)
    for each in sessions:
        await store.update(each.session_id, status="interrupted", error=f"host {host} is gone")
    for one in gone:
        await store.absent(one.process)
    return f"{freed} claims, {waiting} waiting events and {len(sessions)} open sessions of {host}"


async def open_sessions_of(store: SharedStore, host: str) -> list[SessionRecord]:
    """Return the sessions that run on a host, as their records say."""
    running = [each for each in await store.sessions() if each.status == "running"]
    return [each for each in running if host_of(str(each.metadata.get(KEY) or "")) == host]


async def find_elsewhere(store: SharedStore, name: str) -> dict[tuple[str, str], list[Presence]]:
    """Return the background sessions of that name or queue, by project and queue, with the processes that run them."""
    now = await store.now()
    found: dict[tuple[str, str], list[Presence]] = {}
    for each in await store.processes():
        for project, queues in (each.facts.get("states") or {}).items() if is_seen(each, now) else ():
            for queue in queues:
                if name in (queue, queue.rpartition("/")[2]):
                    found.setdefault((project, queue), []).append(each)
    return found


async def change_elsewhere(store: SharedStore, verb: str, name: str, project: str) -> list[str]:
    """Have other hosts change the life of a project's background sessions of that name; return the changed queues.

    What is stored as a wish holds everywhere once one host has done it; a silent one follows later, and is told of in a
    warning. Raises `SessionConflict` with the words of a host that refuses, or about one that does not answer.
    """
    from ..commands import VERBS

    asked: dict[str, tuple[str, str]] = {}
    for (where, queue), processes in sorted((await find_elsewhere(store, name)).items()):
        for each in processes if where == project else ():
            command = {"name": queue, "project": shared_name(store, project)}
            asked[await send_command(store, each.process, verb, command)] = (each.host, queue)
    changed, end, is_enough = set[str](), time.monotonic() + PATIENCE, False
    try:
        while asked and time.monotonic() < end:
            for key, (host, queue) in [*asked.items()]:
                if await _read_answer(store, key, host) is not None:
                    changed.add(queue)
                    del asked[key]
            was_enough, is_enough = is_enough, bool(VERBS[verb]) and changed >= {queue for _, queue in asked.values()}
            if is_enough and not was_enough:
                end = min(end, time.monotonic() + SOON)
            if asked:
                await SystemClock().sleep(LOOK_EVERY)
    finally:
        for key in asked:
            await withdraw(store, key)
    silent = ", ".join(sorted({host for host, _ in asked.values()}))
    if silent and not is_enough:
        raise _explain_silence(silent, changed)
    if silent:
        logger.warning("host %s does not answer; it follows as soon as it does", silent)
    return sorted(changed)


async def cancel_elsewhere(store: SharedStore, session_id: str, by: str) -> dict[str, Any] | None:
    """Have another host cancel the turn of a session; return its answer, None when no host runs it.

    Raises `SessionConflict` with the words of a host that refuses, or that does not answer.
    """
    claimed = await store.deliveries(session_id=session_id, state="claimed", limit=1)
    now, owner = await store.now(), last_owner(claimed[0]) if claimed else ""
    process = next((each for each in await store.processes() if each.process == owner and is_seen(each, now)), None)
    if process is None:
        return None
    key = await send_command(store, process.process, "cancel", {"session_id": session_id, "by": by})
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await _await_answer(store, key, process.host)
    except TimeoutError:
        raise _explain_silence(process.host) from None
    finally:
        await withdraw(store, key)
    found: dict[str, Any] | None = answer.get("answer")
    return found


async def _await_answer(store: SharedStore, key: str, host: str) -> Mapping[str, Any]:
    """Wait for the answer to a command. Raises `SessionConflict` with the words of a host that refuses."""
    while (answer := await _read_answer(store, key, host)) is None:
        await SystemClock().sleep(LOOK_EVERY)
    return answer


async def _read_answer(store: SharedStore, key: str, host: str) -> Mapping[str, Any] | None:
    from amplifier_core.errors import SessionConflict

    answer = await take_answer(store, key)
    if answer is not None and answer["state"] == "refused":
        raise SessionConflict(host, str(answer.get("error")))
    return answer


def _explain_silence(host: str, changed: Collection[str] = ()) -> Exception:
    from amplifier_core.errors import SessionConflict

    done = f"; elsewhere it is done for {', '.join(sorted(changed))}" if changed else ""
    return SessionConflict(host, f"host {host} does not answer after {PATIENCE:g} s{done}. See: amplifier host list")
