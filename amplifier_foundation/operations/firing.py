"""Find the declaration of a background session, and wake it by hand."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import BundleError, SessionConflict, SessionNotFound

from .acting import record_act
from .running import list_all_running

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore

    from ..bundle.background_config import BackgroundSessionConfig
    from ..bundle.model import Bundle
    from .acting import Actor


class Declaration(NamedTuple):
    """A bundle, and the project where its background sessions work."""

    bundle: Bundle
    project: str


async def find_declared(
    store: DurableStore, plugins: Plugins, name: str, *, project: str | None = None, known: Iterable[str] = ()
) -> Declaration:
    """Return the declaration of the background session of this name or queue that runs or has run, and load its bundle.

    Of a broken bundle, it is the one that runs. One of `project` has priority. `known` are further names for the error.
    Raises `NoSuchBackgroundSession`, `SessionConflict` for several and for an unknown bundle, and the errors of
    `load_to_look`.
    """
    import asyncio
    from pathlib import Path

    from ..background.up import root_id
    from .loading import load_to_look, read_trusted_settings

    folder, queue = await find_queue(store, name, project=project, known=known)
    try:
        source = (await store.get(root_id(queue.rpartition("/")[0], folder))).bundle_source
    except SessionNotFound:
        source = ""
    if not source:
        raise SessionConflict(name, f"the bundle of {queue} in {folder} is unknown. Give it with -b")

    def load() -> Bundle:
        settings, _ = read_trusted_settings(Path(folder))
        return load_to_look(source, plugins, settings, Path(folder))

    try:
        return Declaration(await asyncio.to_thread(load), folder)
    except BundleError:
        if (running := await asyncio.to_thread(ask_for_declaration, folder, queue)) is None:
            raise
        return running


async def find_running_from(source: str, store: DurableStore, name: str, project: str) -> Declaration | None:
    """Return the declaration of the background session of this name or queue that a project runs from file `source`."""
    import asyncio

    from ..background.undeclared import source_of
    from ..security.trust_files import path_of

    for folder, queue in sorted({each.key for each in await asyncio.to_thread(list_all_running)}):
        if folder == project and name in (queue, queue.rpartition("/")[2]):
            declared = await source_of(store, project, queue)
            if declared and path_of(declared) == path_of(source):
                return await asyncio.to_thread(ask_for_declaration, project, queue)
    return None


def ask_for_declaration(project: str, queue: str) -> Declaration | None:
    """Return the declaration of a background session as a process of a project runs it; None without one. Blocks."""
    from ..background.asking import ask
    from ..bundle.background_config import BackgroundSessionConfig
    from ..bundle.model import Bundle
    from ..sessions.lock import running_owner

    with suppress(SessionConflict):  # it is starting, or is of an earlier version
        owner = running_owner(project)
        answer = ask(owner, "declaration", project=project, queue=queue) if owner is not None else None
        if answer is not None:
            session = BackgroundSessionConfig.model_validate_json(answer)
            bundle = Bundle(name=queue.rpartition("/")[0], background_sessions=[session])
            return Declaration(bundle, project)
    return None


async def find_queue(
    store: DurableStore, name: str, *, project: str | None = None, known: Iterable[str] = ()
) -> tuple[str, str]:
    """Return the project and the queue of the background session of this name or queue that runs or has run.

    Raises `NoSuchBackgroundSession`, and `SessionConflict` for several.
    """
    import asyncio

    from ..background.asking import NoSuchBackgroundSession

    queues = [(counted.project, counted.queue) for counted in await store.delivery_counts()]
    queues += [each.key for each in await asyncio.to_thread(list_all_running)]
    found = sorted({each for each in queues if name in (each[1], each[1].rpartition("/")[2])})
    found = [each for each in found if each[0] == project] or found
    if not found:
        raise NoSuchBackgroundSession(name, [*known, *(queue.rpartition("/")[2] for _, queue in queues)])
    if len(found) > 1:
        listed = ", ".join(f"{queue} in {folder}" for folder, queue in found)
        raise SessionConflict(name, f"several background sessions have this name: {listed}. Choose a bundle with -b")
    return found[0]


def background_session_named(bundle: Bundle, name: str) -> BackgroundSessionConfig:
    """Return the background session with this name. Raises `NoSuchBackgroundSession`."""
    from ..background.asking import NoSuchBackgroundSession

    for session in bundle.background_sessions:
        if session.name == name:
            return session
    raise NoSuchBackgroundSession(name, [each.name for each in bundle.background_sessions])


async def fire(
    store: DurableStore, plugins: Plugins, actor: Actor, declared: Declaration, name: str, payload: Mapping[str, Any]
) -> Delivery | None:
    """Enqueue an event with `payload` for the background session `name`; the caller then calls `wake`.

    The delivery's `state` and `reason` say whether it was refused or skipped. None: an equal event waits already.
    Raises `NoSuchBackgroundSession`, and `PluginError` for a plugin that fails when it is asked.
    """
    from ..background.firing import fire_by_hand
    from ..background.keys import queue_key

    session = background_session_named(declared.bundle, name)
    delivery = await fire_by_hand(store, plugins, declared.project, declared.bundle.name, session, payload)
    place = {"project": declared.project, "queue": queue_key(declared.bundle.name, name)}
    about = {"delivery_id": delivery.delivery_id, "state": delivery.state} if delivery is not None else {}
    await record_act(store, actor, "trigger.fire", name, **place, **about)
    return delivery
