"""A context: the messages of a session in a list, compacted when they outgrow the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "context"


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    config = config or {}
    memory = Memory(coordinator.hooks, config.get("compact_threshold", 0.9), config.get("max_tokens"))
    await coordinator.mount("context", memory)


class Memory:
    def __init__(self, hooks: Any, threshold: float, max_tokens: int | None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.threshold = threshold
        self.max_tokens = max_tokens
        self._hooks = hooks
        self._system_prompt: Callable[[], Awaitable[str]] | None = None

    async def set_system_prompt_factory(self, factory: Callable[[], Awaitable[str]]) -> None:
        self._system_prompt = factory

    async def add_message(self, message: dict[str, Any]) -> None:
        stamped = {"timestamp": datetime.now(UTC).isoformat(), **(message.get("metadata") or {})}
        self.messages.append({**message, "metadata": stamped})

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        budget = token_budget or self._budget(provider)
        kept = self.messages
        if self._tokens(kept) > budget * self.threshold:
            kept = await self._compacted(budget)
        if self._system_prompt is not None:
            kept = [{"role": "system", "content": await self._system_prompt()}, *kept]
        return kept

    def _budget(self, provider: Any) -> int:
        if self.max_tokens is not None:
            return self.max_tokens
        defaults = provider.get_info().defaults if provider is not None else {}
        return defaults.get("context_window", 100_000) - defaults.get("max_output_tokens", 4096)

    async def _compacted(self, budget: int) -> list[dict[str, Any]]:
        before = self._tokens(self.messages)
        await self._hooks.emit("context:pre_compact", {"messages": len(self.messages), "tokens": before})
        kept = [message for message in self.messages if message["role"] != "tool" and not message.get("tool_calls")]
        told = {"before_tokens": before, "after_tokens": self._tokens(kept), "budget": budget}
        await self._hooks.emit("context:compaction", told)
        await self._hooks.emit("context:post_compact", told)
        return kept

    def _tokens(self, messages: list[dict[str, Any]]) -> int:
        return sum(len(str(message.get("content"))) for message in messages) // 4
