"""Hold the messages of a session, and choose those for a request."""

from __future__ import annotations

from time import gmtime, strftime, time_ns
from typing import TYPE_CHECKING, Any

from amplifier_core.events import CONTEXT_COMPACTION, CONTEXT_POST_COMPACT, CONTEXT_PRE_COMPACT

from .config import read_config
from .cut import Cut, Ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from amplifier_core import ModuleCoordinator
    from amplifier_core.transcript import Transcript

Message = dict[str, Any]

TRANSCRIPT = "session.transcript"


class SimpleContextManager:
    """The messages of one session, in `transcript`: the kernel's own if it offers one, else a list.

    `max_tokens` limits a request; without it, the provider's context window does. A request beyond `compact_threshold`
    of the limit is compacted to `target_usage` of it. Only requests are: the transcript stays whole.
    """

    def __init__(self, coordinator: ModuleCoordinator | None = None, config: Mapping[str, Any] | None = None) -> None:
        shared = None if coordinator is None else coordinator.get_capability(TRANSCRIPT)
        self.transcript: Transcript | list[Message] = [] if shared is None else shared
        checked = read_config(config or {})
        self.max_tokens = checked.max_tokens
        self.compact_threshold, self.target_usage = checked.compact_threshold, checked.target_usage
        self._coordinator = coordinator
        self._is_shared = shared is not None
        self._system_prompt: Callable[[], Awaitable[str]] | None = None
        self._ledger = Ledger(self.transcript)
        self._window: tuple[Any, int | None] = (None, None)
        """The last provider, and its limit in tokens."""
        self._cut: tuple[int, Cut] | None = None
        """The budget of the last cut, and the cut."""

    async def add_message(self, message: Message) -> None:
        """Append a copy of `message`, with `metadata.timestamp` (UTC, ISO 8601) unless it has one."""
        metadata = message.get("metadata")
        if metadata is None:
            message = {**message, "metadata": {"timestamp": _now()}}
        elif isinstance(metadata, dict) and "timestamp" not in metadata:
            message = {**message, "metadata": {**metadata, "timestamp": _now()}}
        else:
            message = {**message}
        self.transcript.append(message)

    async def get_messages(self) -> list[Message]:
        """Return a copy of every message; deeper values are shared."""
        return [*map(dict.copy, self.transcript)]

    async def set_messages(self, messages: Iterable[Message]) -> None:
        """Replace every message; existing forks keep theirs."""
        self.transcript = type(self.transcript)([dict(message) for message in messages])
        self._ledger = Ledger(self.transcript)
        self._cut = None
        if self._is_shared and self._coordinator is not None:
            self._coordinator.register_capability(TRANSCRIPT, self.transcript)

    async def clear(self) -> None:
        """Forget every message."""
        await self.set_messages([])

    async def set_system_prompt_factory(self, factory: Callable[[], Awaitable[str]] | None) -> None:
        """Call `factory` for the system prompt at every request."""
        self._system_prompt = factory

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Message]:
        """Return the system prompt and the end of the history within `token_budget` tokens, of about four characters.

        The default is `max_tokens`, then the provider's context window; without any, everything is returned. Only the
        end of the transcript is read, until it fills the budget. A new cut emits `context:pre_compact`,
        `context:compaction` and `context:post_compact`; `tokens_before` counts the messages read: more than the
        threshold, at most all.
        """
        prompt = await self._system_prompt() if self._system_prompt is not None else ""
        if self._window[0] is not provider:
            self._window = (provider, read_window(provider))
        budget = token_budget or self.max_tokens or self._window[1]
        fitting = self.transcript if budget is None else await self._choose(budget, len(prompt) // 4)
        messages = [*map(dict.copy, fitting)]
        return [{"role": "system", "content": prompt}, *messages] if prompt else messages

    async def _choose(self, budget: int, prompt: int) -> Sequence[Message]:
        """Return the opening and the end of the history within `budget` tokens, `prompt` of them taken.

        A cut stays where it is as long as the rest fits: the requests then begin alike, for a provider's prompt cache.
        """
        history, ledger = self.transcript, self._ledger
        limit = budget * self.compact_threshold - prompt
        if not ledger.exceeds(limit):
            return history
        room = limit - ledger.opening_tokens
        cut = self._cut[1] if self._cut is not None and self._cut[0] == budget else Cut(ledger.opening)
        if cut.head_tokens + ledger.tokens_from(cut.first) > room:
            was, cut = cut, ledger.cut(room, room * min(1, self.target_usage / self.compact_threshold))
            self._cut = (budget, cut)
            if cut.first != was.first:
                await self._announce_cut(cut, budget)
        return [*history[: ledger.opening], *cut.head, *history[cut.first :]]

    async def _announce_cut(self, cut: Cut, budget: int) -> None:
        if self._coordinator is None:
            return
        ledger, emit = self._ledger, self._coordinator.hooks.emit
        dropped = cut.first - ledger.opening - len(cut.head)
        before = {"messages": len(self.transcript), "tokens_before": ledger.total, "budget": budget}
        done = {
            "dropped_messages": dropped,
            "kept_messages": len(self.transcript) - dropped,
            "tokens_before": ledger.total,
            "tokens_after": ledger.opening_tokens + cut.head_tokens + ledger.tokens_from(cut.first),
            "budget": budget,
        }
        await emit(CONTEXT_PRE_COMPACT, before)
        await emit(CONTEXT_COMPACTION, done)
        await emit(CONTEXT_POST_COMPACT, done)


_stamped_second = ("", "")


def _now() -> str:
    """Return the time in UTC as ISO 8601; the text of a second is made once."""
    global _stamped_second  # one pair, so a thread never joins another's second to its own text
    now = str(time_ns())
    known, text = _stamped_second
    if now[:-9] != known:
        known = now[:-9]
        text = strftime("%Y-%m-%dT%H:%M:%S", gmtime(int(known)))
        _stamped_second = (known, text)
    return f"{text}.{now[-9:-3]}+00:00"


def read_window(provider: Any) -> int | None:
    """Return a provider's context window less the room for its answer (at most half), in tokens; None if unknown."""
    info = getattr(provider, "get_info", None)
    defaults = getattr(info(), "defaults", None) if callable(info) else None
    window = defaults.get("context_window") if isinstance(defaults, dict) else None
    if not isinstance(window, int) or window < 1:
        return None
    answer = defaults.get("max_output_tokens") if isinstance(defaults, dict) else None
    return window - min(answer, window // 2) if isinstance(answer, int) else window
