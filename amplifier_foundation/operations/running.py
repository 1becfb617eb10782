"""Ask the processes that run background sessions, one for each folder, and change what they run.

The functions that are not async block: until an answer comes, or half a minute has passed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import SessionConflict

from .acting import record_act

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Literal

    from amplifier_core.storage import DurableStore, SessionStore

    from .acting import Actor

    Verb = Literal["start", "stop", "restart", "pause", "resume"]


class Running(NamedTuple):
    """A background session of a running process."""

    key: tuple[str, str]
    """Its project and its queue."""
    session_id: str
    status: dict[str, Any]


class Changed(NamedTuple):
    """A background session whose life was changed; its project is None when its process did not tell it."""

    project: str | None
    queue: str


def list_running(owner: Mapping[str, Any]) -> list[Running]:
    """Return the background sessions that the process `owner` runs. Blocks.

    Raises `SessionConflict` when it does not answer.
    """
    from ..background.asking import ask

    answer = ask(owner, "status")
    return [
        Running((each["project"], row["queue"]), session_id, row)
        for each in answer
        for session_id, row in each["sessions"].items()
    ]


def list_all_running() -> list[Running]:
    """Return the same for all processes of the data folder; one without an answer is left out. Blocks."""
    from ..sessions.lock import running_owners

    found = []
    for owner in running_owners():
        with suppress(SessionConflict):
            found += list_running(owner)
    return found


def change_here(verb: str, name: str, *, first: str | None = None, project: str | None = None) -> list[Changed]:
    """Ask this host's processes for a change of the background sessions of that name, queue or id. Blocks.

    Those of one project are changed: of `project`, or of `first` if it has any. Raises `NothingRuns`,
    `NoSuchBackgroundSession`, and `SessionConflict` for a refusal, and for several projects to choose from.
    """
    from ..background.asking import AT_ONCE, PATIENCE, NoSuchBackgroundSession, NothingRuns, ask
    from ..sessions.lock import running_owners

    owners = running_owners()
    project = project or find_project(owners, name, first)
    owners = [each for each in owners if project is None or project in (each.get("projects") or ())]
    if not owners:
        raise NothingRuns
    within = {} if project is None else {"project": project}
    near = [owner for owner in owners if first in (owner.get("projects") or ())]
    refusal: SessionConflict | None = None
    for group in (near, [owner for owner in owners if owner not in near]):
        changed: list[Changed] = []
        for owner in group:
            try:
                ids = ask(owner, verb, patience=PATIENCE + AT_ONCE, name=name, **within)
                keys = {session_id: key for key, session_id, _ in list_running(owner)}
                changed += [Changed(*keys.get(session_id, (None, name))) for session_id in ids]
            except SessionConflict as error:
                refusal = error
        if changed:
            return changed
    if refusal is not None and "no background session" not in str(refusal):
        raise refusal
    raise NoSuchBackgroundSession(name, [each.status["name"] for each in list_all_running()])


def find_project(
    owners: Sequence[Mapping[str, Any]], name: str, first: str | None, elsewhere: Collection[tuple[str, str]] = ()
) -> str | None:
    """Return the project of the background sessions of that name, queue or id: `first` if it is one of several.

    Other hosts run those `elsewhere`, projects and queues. None when no process tells. Raises `SessionConflict` for
    several others. Blocks.
    """
    near = [owner for owner in owners if first in (owner.get("projects") or ())]
    here = {key for key in elsewhere if key[0] == first}
    for group, found in ((near, here), ([owner for owner in owners if owner not in near], set(elsewhere))):
        for owner in group:
            with suppress(SessionConflict):
                known = ((key, session_id) for key, session_id, _ in list_running(owner))
                found |= {key for key, own in known if name in (own, key[1], key[1].rpartition("/")[2])}
        projects = sorted({project for project, _ in found})
        if first in projects or len(projects) == 1:
            return first if first in projects else projects[0]
        if projects:
            listed = ", ".join(f"{queue} in {project}" for project, queue in sorted(found))
            advice = "Go to the folder of one" + ("" if elsewhere else ", or give its id: amplifier ps --json")
            raise SessionConflict(name, f"several background sessions have this name: {listed}. {advice}")
    return None


async def record_change(store: SessionStore, actor: Actor, verb: Verb, changed: list[Changed]) -> None:
    """Record who has changed the life of background sessions."""
    for each in changed:
        subject = each.queue.rpartition("/")[2]
        await record_act(store, actor, f"background_session.{verb}", subject, project=each.project, queue=each.queue)


async def change_background_session(
    store: DurableStore, actor: Actor, verb: Verb, name: str, *, first: str | None = None, project: str | None = None
) -> list[Changed]:
    """Change the life of the background sessions of that name, queue or id, wherever they run, and record it.

    Those of one project are changed, as `change_here` says; on a shared store, of all hosts. Raises the errors of
    `change_here`, and `SessionConflict` with the words of a host that refuses, or that does not answer.
    """
    import asyncio

    from ..background.asking import NoSuchBackgroundSession, NothingRuns
    from ..background.hosts.sharing import shared_store
    from ..sessions.lock import running_owners

    shared = shared_store(store)
    if shared is not None and project is None:
        from ..background.hosts.people import find_elsewhere

        elsewhere = await find_elsewhere(shared, name)
        project = await asyncio.to_thread(find_project, running_owners(), name, first, elsewhere)
    try:
        changed = await asyncio.to_thread(change_here, verb, name, first=first, project=project)
    except (NothingRuns, NoSuchBackgroundSession):
        if shared is None or project is None:
            raise
        from ..background.hosts.people import change_elsewhere

        changed = [Changed(project, queue) for queue in await change_elsewhere(shared, verb, name, project)]
        if not changed:
            raise
    await record_change(store, actor, verb, changed)
    return changed


def wake(project: str, queue: str) -> bool:
    """Make the running process look at a queue now; return whether there is one, and it has this queue.

    Without this call the process looks within a second. Blocks.
    """
    from ..background.asking import ask
    from ..sessions.lock import running_owner

    owner = running_owner(project)
    if owner is None:
        return False
    with suppress(SessionConflict):  # it is starting
        answer = ask(owner, "wake", project=project, name=queue.rpartition("/")[2], queue=queue)
        return answer is not False  # a process of an earlier version tells nothing
    return True


async def status_elsewhere(store: SessionStore, project: str, queue: str) -> str:
    """Return the status of a background session that another host of a shared store runs; '' when none does.

    That host hears of new work by itself.
    """
    from ..background.hosts.sharing import shared_store

    if (shared := shared_store(store)) is None:
        return ""
    from ..background.hosts.people import find_elsewhere

    processes = (await find_elsewhere(shared, queue)).get((project, queue), [])
    return next((str(each.facts["states"][project][queue][0]) for each in processes), "")
