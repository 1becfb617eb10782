"""Start the workers of a foreman: beside a conversation, or in a program that has the session alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .panel import WorkersPanel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ModuleCoordinator

logger = logging.getLogger(__name__)

HOST, DOCUMENTS, ROUTER, PANEL = "background.host", "documents", "event_router", "conversation.panel"
"""Capabilities: who runs background sessions, the issues, events, and what a terminal shows beside the conversation."""
SPAWN = "session.spawn"
"""The capability of a conversation, and of a session below another one: a program's own session has none."""


async def start_workers(coordinator: ModuleCoordinator, declared: Mapping[str, Any]) -> str | None:
    """Start the background sessions of the bundle, or the `declared` ones of a program; the session's end stops them.

    Return who else runs them, None for this process: the other one may end, so ask again. Without a host, only the
    session of a program has workers. Raises `BundleError` and `UnknownName` for what cannot start.
    """
    host, owner = coordinator.get_capability(HOST), None
    if host is not None:
        owner = await host.start()
    elif coordinator.get_capability(SPAWN) is None:
        await _start_declared(coordinator, declared)
    documents = coordinator.get_capability(DOCUMENTS)
    if documents is not None and coordinator.get_capability(PANEL) is None:
        panel = WorkersPanel(documents, host)
        coordinator.register_capability(PANEL, panel)
        coordinator.register_cleanup(panel.close)
    return owner


async def _start_declared(coordinator: ModuleCoordinator, declared: Mapping[str, Any]) -> None:
    """Start what the config of the session or of the orchestrator declares, in a manager of the session.

    Its store is that of the program (`session.storage`), or one in memory; the issues of the session are in it, too.
    """
    from amplifier_foundation.background import BackgroundSessionManager
    from amplifier_foundation.background.partial_store import complete_store
    from amplifier_foundation.bundle.validation import read_background_sessions
    from amplifier_foundation.events import EventRouter
    from amplifier_foundation.paths import project_of
    from amplifier_foundation.sessions.documents import find_documents

    session = coordinator.session
    listed = list(coordinator.config.get("background_sessions") or ())  # those of a bundle may be in its config, too
    listed += [each for each in declared.get("background_sessions") or () if each not in listed]
    names = {each.get("name") for each in listed}
    configs = read_background_sessions(
        [*listed, *(each for each in _read_pools(declared) if each["name"] not in names)]
    )
    if not configs or session is None:
        return
    store = complete_store(coordinator.get_capability("session.storage"))
    router = coordinator.get_capability(ROUTER) or EventRouter(store)
    coordinator.register_capability(ROUTER, router)
    if coordinator.get_capability(DOCUMENTS) is None:
        project = project_of(coordinator.get_capability("session.working_dir"))
        own = find_documents(store, project, session_id=session.session_id, publish=router.publish)
        coordinator.register_capability(DOCUMENTS, own)
    manager = BackgroundSessionManager(session, router, store)
    try:
        for config in configs:
            if config.start_on_parent_start:
                await manager.start(config)
                logger.info("Started background session '%s'", config.name)
    except BaseException:  # the next turn starts all of them
        await manager.stop_all(grace=0.0)
        raise


def _read_pools(declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a background session for each pool of workers. Raises `InvalidBundle`."""
    if not declared.get("worker_pools"):
        return []
    from amplifier_foundation.bundle.validation import check_pools
    from amplifier_foundation.documents.positions import Positions
    from amplifier_foundation.documents.problems import InvalidBundle

    entries, problems = check_pools(dict(declared), Positions("orchestrator-foreman"))
    if problems:
        raise InvalidBundle(problems)
    return entries
