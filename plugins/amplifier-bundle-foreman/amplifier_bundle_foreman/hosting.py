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


async def start_workers(coordinator: ModuleCoordinator, declared: Mapping[str, Any]) -> None:
    """Start the background sessions of the bundle, or the `declared` ones of a program; the session's end stops them.

    Where another process runs them, it goes on with that. Raises `BundleError` and `UnknownName` for what cannot start.
    """
    host = coordinator.get_capability(HOST)
    if host is None:
        await _start_declared(coordinator, declared)
    elif (owner := await host.start()) is not None:
        logger.info("the workers of this project run in %s", owner)
    documents = coordinator.get_capability(DOCUMENTS)
    if documents is not None:
        panel = WorkersPanel(documents, host)
        coordinator.register_capability(PANEL, panel)
        coordinator.register_cleanup(panel.close)


async def _start_declared(coordinator: ModuleCoordinator, declared: Mapping[str, Any]) -> None:
    """Start what the config of the session or of the orchestrator declares, in a manager of the session."""
    from amplifier_foundation.background import BackgroundSessionManager
    from amplifier_foundation.bundle.validation import read_background_sessions
    from amplifier_foundation.events import EventRouter

    listed = [*(coordinator.config.get("background_sessions") or ()), *(declared.get("background_sessions") or ())]
    configs = read_background_sessions([*listed, *_read_pools(declared)])
    if not configs or coordinator.session is None:
        return
    store = coordinator.get_capability("session.storage")
    router = coordinator.get_capability(ROUTER) or EventRouter(store)
    coordinator.register_capability(ROUTER, router)
    manager = BackgroundSessionManager(coordinator.session, router, store)
    for config in configs:
        if config.start_on_parent_start:
            await manager.start(config)
            logger.info("Started background session '%s'", config.name)


def _read_pools(declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a background session for each pool of workers. Raises `ValidationError`."""
    if not declared.get("worker_pools"):
        return []
    from amplifier_foundation.bundle.worker_pools import ForemanPools

    return ForemanPools.model_validate(dict(declared)).entries()
