"""Take the turns of a foreman: the workers run meanwhile, and each turn begins with what they did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amplifier_loop_streaming import StreamingOrchestrator

from .hosting import start_workers
from .reporting import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core import ContextManager, HookRegistry, ModuleCoordinator, Provider, Tool
    from amplifier_core.documents import Documents
    from amplifier_loop_basic.turn import Turn

NAME = "orchestrator-foreman"
POOLS = ("background_sessions", "worker_pools", "routing")
"""Keys of the config about the workers; a bundle's own are taken from it when it is loaded."""


class ForemanOrchestrator(StreamingOrchestrator):
    """The loop of a foreman's session; the first turn starts its background sessions."""

    module = NAME

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        config = dict(config or {})
        self._declared = {key: config.pop(key) for key in POOLS if key in config}
        super().__init__(config)
        self._starting = asyncio.Lock()
        self._has_started = False
        self._owner: str | None = None
        self._report = ""

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        **kwargs: Any,
    ) -> str:
        """Run one turn and return its final text; raises as `BasicOrchestrator.execute` does, and for bad workers."""
        coordinator = kwargs.get("coordinator")
        if coordinator is None:
            return await super().execute(prompt, context, providers, tools, hooks, **kwargs)
        await self._start(coordinator)
        documents: Documents | None = coordinator.get_capability("documents")
        report = Report(documents) if documents is not None else None
        news, self._report = await report.read() if report is not None else ("", "")
        if news:
            _tell(coordinator, news)
        answer = await super().execute(prompt, context, providers, tools, hooks, **kwargs)
        if report is not None:
            await report.keep()
        return answer

    def make_turn(self, **parts: Any) -> Turn:
        """Return a new turn; its first request has the report."""
        if self._report:
            parts["signals"].inject(self._report)
        return super().make_turn(**parts)

    async def _start(self, coordinator: ModuleCoordinator) -> None:
        async with self._starting:
            if self._has_started:
                return
            before, self._owner = self._owner, await start_workers(coordinator, self._declared)
            self._has_started = self._owner is None
            if self._owner not in (None, before):
                _tell(coordinator, f"the workers of this folder run in {self._owner}")


def _tell(coordinator: ModuleCoordinator, text: str) -> None:
    """Show a text to the person, whatever the model says."""
    if coordinator.display_system is not None:
        coordinator.display_system.show_message(text, "info", "foreman")
