"""Ask the processes that run background sessions, one for each folder."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict

from .app import project_here

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_running(owner: Mapping[str, Any]) -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
    """Return project and queue, id and status of each background session run by the process `owner`.

    Raises `SessionConflict` when it does not answer.
    """
    from ..background.asking import ask

    answer = ask(owner, "status")
    return [
        ((each["project"], row["queue"]), session_id, row)
        for each in answer
        for session_id, row in each["sessions"].items()
    ]


def list_all_running() -> list[tuple[tuple[str, str], str, dict[str, Any]]]:
    """Return the same for all processes of the data folder; one without an answer is left out."""
    from ..sessions.lock import running_owners

    found = []
    for owner in running_owners():
        with suppress(SessionConflict):
            found += list_running(owner)
    return found


def change_background_session(verb: str, name: str) -> list[str]:
    """Ask for a change of the background session of that name, queue or id; return the queues of the changed ones.

    The process of this folder is asked first, then those of others. Raises `NothingRuns`, `NoSuchBackgroundSession`.
    """
    from ..background.asking import AT_ONCE, PATIENCE, NoSuchBackgroundSession, NothingRuns, ask
    from ..sessions.lock import running_owners

    owners = running_owners()
    if not owners:
        if changed_elsewhere := _change_elsewhere(verb, name):
            return changed_elsewhere
        raise NothingRuns
    here = [owner for owner in owners if project_here() in (owner.get("projects") or ())]
    refusal: SessionConflict | None = None
    for group in (here, [owner for owner in owners if owner not in here]):
        changed: list[str] = []
        for owner in group:
            try:
                ids = ask(owner, verb, patience=PATIENCE + AT_ONCE, name=name)
                queues = {session_id: queue for (_, queue), session_id, _ in list_running(owner)}
                changed += [queues.get(session_id, name) for session_id in ids]
            except SessionConflict as error:
                refusal = error
        if changed:
            return changed
    known = [row["name"] for _, _, row in list_all_running()]
    if refusal is not None and "no background session" not in str(refusal):
        raise refusal
    if changed_elsewhere := _change_elsewhere(verb, name):
        return changed_elsewhere
    raise NoSuchBackgroundSession(name, known)


def _change_elsewhere(verb: str, name: str) -> list[str]:
    """Ask the other hosts of a shared store; return the queues of the changed ones, none for a store of this host."""
    import click

    from ..sessions.storages import DEFAULT_STORAGE
    from .app import storage_plugins, storage_setting, use_inbox
    from .loops import run_async

    if storage_setting() == DEFAULT_STORAGE:
        return []
    from ..background.hosts.people import change_elsewhere
    from ..background.hosts.sharing import shared_store

    async def change() -> list[str]:
        async with use_inbox(storage_plugins(click.get_current_context())) as store:
            shared = shared_store(store)
            return await change_elsewhere(shared, verb, name) if shared is not None else []

    return run_async(change())


def wake(project: str, name: str) -> bool:
    """Make the running process look at the queue of background session `name` now; return whether there is one.

    Without this call the process looks within a second.
    """
    from ..background.asking import ask
    from ..sessions.lock import running_owner

    owner = running_owner(project)
    if owner is None:
        return False
    with suppress(SessionConflict):
        ask(owner, "wake", project=project, name=name)
    return True
