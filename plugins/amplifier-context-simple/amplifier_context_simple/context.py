"""What a session mounts: its messages, and the requests made of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amplifier_core.events import CONTEXT_COMPACTION

from .cut import Ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from amplifier_core import ModuleCoordinator
    from amplifier_core.transcript import Transcript

Message = dict[str, Any]

TRANSCRIPT = "session.transcript"


class SimpleContextManager:
    """The messages of one session, in `transcript`: the kernel's own where it offers one, else a list.

    `max_tokens` limits a request; without it the provider's context window does.
    """

    def __init__(self, coordinator: ModuleCoordinator | None = None, config: Mapping[str, Any] | None = None) -> None:
        shared = None if coordinator is None else coordinator.get_capability(TRANSCRIPT)
        self.transcript: Transcript | list[Message] = [] if shared is None else shared
        self.max_tokens = _max_tokens((config or {}).get("max_tokens"))
        self._coordinator = coordinator
        self._is_shared = shared is not None
        self._system_prompt: Callable[[], Awaitable[str]] | None = None
        self._ledger = Ledger(self.transcript)
        self._window: tuple[Any, int | None] = (None, None)
        """The provider that was asked last, and how much it reads."""
        self._cut: tuple[int, int] | None = None
        """The budget of the last cut, and how many messages after the opening it dropped."""

    async def add_message(self, message: Message) -> None:
        """Append a copy of `message`, with `metadata.timestamp` (UTC, ISO 8601) unless it has one."""
        added = {**message}
        metadata = added.get("metadata")
        if metadata is None:
            added["metadata"] = {"timestamp": _now()}
        elif isinstance(metadata, dict) and "timestamp" not in metadata:
            added["metadata"] = {**metadata, "timestamp": _now()}
        self.transcript.append(added)

    async def get_messages(self) -> list[Message]:
        """Return a copy of every message; what lies deeper in a message is shared."""
        return [*map(dict.copy, self.transcript)]

    async def set_messages(self, messages: Iterable[Message]) -> None:
        """Replace every message. Forks made before keep theirs."""
        self.transcript = type(self.transcript)([dict(message) for message in messages])
        self._ledger = Ledger(self.transcript)
        self._cut = None
        if self._is_shared and self._coordinator is not None:
            self._coordinator.register_capability(TRANSCRIPT, self.transcript)

    async def clear(self) -> None:
        """Forget every message."""
        await self.set_messages([])

    async def set_system_prompt_factory(self, factory: Callable[[], Awaitable[str]] | None) -> None:
        """Have `factory` asked for the system prompt at every request."""
        self._system_prompt = factory

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Message]:
        """Return the system prompt and the last turns that fit in `token_budget` tokens (about four characters each).

        Without a budget, `max_tokens` holds, then the provider's context window; without any, everything is returned.
        With one, only as much of the end of the transcript is read as it takes to fill it. A cut emits
        `context:compaction`; its `tokens_before` counts what was read: more than the budget, at most the whole.
        """
        prompt = await self._system_prompt() if self._system_prompt is not None else ""
        system: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        budget = token_budget or self.max_tokens or self._window_of(provider)
        fitting = self.transcript if budget is None else await self._fitting(budget - len(prompt) // 4)
        return [*system, *map(dict.copy, fitting)]

    def _window_of(self, provider: Any) -> int | None:
        if self._window[0] is not provider:
            self._window = (provider, _window(provider))
        return self._window[1]

    async def _fitting(self, budget: int) -> Sequence[Message]:
        history, ledger = self.transcript, self._ledger
        if not ledger.exceeds(budget):
            return history
        opening, room = ledger.opening, budget - ledger.opening_tokens
        dropped = self._cut[1] if self._cut is not None and self._cut[0] == budget else 0
        if ledger.tokens_from(opening + dropped) > room:
            was, dropped = dropped, ledger.first_kept(room) - opening
            self._cut = (budget, dropped)
            if dropped != was:
                await self._announce_cut(dropped, budget)
        return [*history[:opening], *history[opening + dropped :]]

    async def _announce_cut(self, dropped: int, budget: int) -> None:
        if self._coordinator is None:
            return
        ledger = self._ledger
        await self._coordinator.hooks.emit(
            CONTEXT_COMPACTION,
            {
                "dropped_messages": dropped,
                "kept_messages": len(self.transcript) - dropped,
                "tokens_before": ledger.total,
                "tokens_after": ledger.opening_tokens + ledger.tokens_from(ledger.opening + dropped),
                "budget": budget,
            },
        )


_stamped_second = ("", "")


def _now() -> str:
    """Return the time in UTC as ISO 8601; the text of a second is made once in it."""
    global _stamped_second  # one pair, so that a thread never joins another's second to its own text
    now = str(time.time_ns())
    second = now[:-9]
    known, text = _stamped_second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(second)))
        _stamped_second = (second, text)
    return f"{text}.{now[-9:-3]}+00:00"


def _max_tokens(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"context-simple: max_tokens: must be a whole number of tokens from 1 on, not {value!r}")
    return value


def _window(provider: Any) -> int | None:
    """Return the tokens a provider reads, less the room for its answer (never more than half); None when unknown."""
    info = getattr(provider, "get_info", None)
    defaults = getattr(info(), "defaults", None) if callable(info) else None
    window = defaults.get("context_window") if isinstance(defaults, dict) else None
    if not isinstance(window, int) or window < 1:
        return None
    answer = defaults.get("max_output_tokens") if isinstance(defaults, dict) else None
    return window - min(answer, window // 2) if isinstance(answer, int) else window
