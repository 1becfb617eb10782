"""Hold the messages of a session, and choose those for a request."""

from __future__ import annotations

from math import inf
from time import gmtime, strftime, time_ns
from typing import TYPE_CHECKING, Any

from amplifier_core.events import (
    CONTEXT_COMPACTION,
    CONTEXT_POST_COMPACT,
    CONTEXT_PRE_COMPACT,
    PROVIDER_ERROR,
    PROVIDER_RESPONSE,
)

from .config import read_config
from .cut import Cut, Ledger, tokens_of_tools
from .memory import COMPACTION, RISE, describe_cut, read_input_tokens, recall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from amplifier_core import ModuleCoordinator
    from amplifier_core.transcript import Transcript

Message = dict[str, Any]

TRANSCRIPT = "session.transcript"
_LARGE = 0.1
"""The share of the limit from which the counts of the model are listened to."""
_REFUSED = 0.9
"""The share of a refused request that is too long already, at most."""
_LAST = 1_000_000


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
        self._window: tuple[str, int | None] = ("", None)
        """The model of the last request, and its limit in tokens: a provider may change both."""
        self._cut: tuple[int | None, Cut] | None = None
        """The budget of the last cut, and the cut."""
        self._scale = 1.0
        """The model's tokens for one of those counted here: it may count four times as many, as of Chinese."""
        self._most = inf
        """The tokens counted here that the model may take, since it has refused a request; each answer raises it."""
        self._before: tuple[float, tuple[int | None, Cut] | None] | None = None
        """`_most` and `_cut` of before a refusal, until a shorter request is answered."""
        self._refused = inf
        """What is left to try when all shorter requests were refused, too: the next refusal goes on from there."""
        self._sent = 0.0
        """The tokens counted here of the last request."""
        self._tools: int | None = None
        """The tokens of the definitions of the tools, once requests are large."""
        self._recalls = True
        """Whether the first request is to come: its history may be one of before."""
        self._fresh_cut: dict[str, Any] | None = None
        """A new cut, to be kept in the next message."""

    async def add_message(self, message: Message) -> None:
        """Append a copy of `message`, with `metadata.timestamp` (UTC, ISO 8601) unless it has one."""
        metadata = message.get("metadata")
        if self._fresh_cut is not None and isinstance(metadata, dict | None):
            metadata, self._fresh_cut = {**(metadata or {}), COMPACTION: self._fresh_cut}, None
            message = {**message, "metadata": metadata}
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
        self._cut, self._fresh_cut, self._before, self._recalls = None, None, None, True
        if self._is_shared and self._coordinator is not None:
            self._coordinator.register_capability(TRANSCRIPT, self.transcript)

    async def clear(self) -> None:
        """Forget every message."""
        await self.set_messages([])

    async def set_system_prompt_factory(self, factory: Callable[[], Awaitable[str]] | None) -> None:
        """Call `factory` for the system prompt at every request."""
        self._system_prompt = factory

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Message]:
        """Return the system prompt and the end of the history within `token_budget` tokens.

        A token is four characters until the model has reported how many it counts. The default is `max_tokens`, then
        the provider's context window; without any, everything is returned. Only the end of the transcript is read,
        until it fills the budget. A new cut emits `context:pre_compact`, `context:compaction` and
        `context:post_compact`; `tokens_before` counts the messages read: more than the threshold, at most all.
        """
        prompt = await self._system_prompt() if self._system_prompt is not None else ""
        window = read_window(provider)
        if self._window != window:
            self._window = window
            self._scale, self._most, self._refused, self._before, self._recalls = 1.0, inf, inf, None, True
        budget = token_budget or self.max_tokens or window[1]
        self._sent = 0
        if self._recalls:
            self._recall(budget, len(prompt) // 4)
        is_bound = budget is not None or self._most < inf
        fitting = await self._choose(budget, len(prompt) // 4) if is_bound else self.transcript
        messages = [*map(dict.copy, fitting)]
        return [{"role": "system", "content": prompt}, *messages] if prompt else messages

    def compact_harder(self) -> None:
        """Take the last request for too long, as its model has refused it: the next ones have about half of it.

        With each answer they may have a little more: the refusal may have been for what others have added to it.
        """
        if not self._sent:  # no limit was known
            self._ledger.exceeds(inf)
            self._sent = self._ledger.total
        self._listen()
        self._before = self._before or (self._most, self._cut)
        self._most = min(self._refused, self._sent * min(self.compact_threshold, _REFUSED))

    async def _choose(self, budget: int | None, prompt: int) -> Sequence[Message]:
        """Return the opening and the end of the history within `budget` tokens, `prompt` of them taken.

        A cut stays where it is as long as the rest fits: the requests then begin alike, for a provider's prompt cache.
        """
        history, ledger = self.transcript, self._ledger
        taken = prompt + (self._tools or 0)
        whole = inf if budget is None else budget * self.compact_threshold / self._scale
        limit = min(whole, self._most) - taken
        known = self._cut[1] if self._cut is not None and self._cut[0] == budget else None
        # As the limit rises after a refusal, the cut stays: what was refused would soon be sent again.
        if not ledger.exceeds(limit) and (known is None or self._most == inf):
            self._note_sent(taken + ledger.total, limit)
            return history
        room = limit - ledger.opening_tokens
        cut = known or Cut(ledger.opening)
        if cut.head_tokens + ledger.tokens_from(cut.first) > room:
            was, cut = cut, ledger.cut(room, room * min(1, self.target_usage / self.compact_threshold))
            self._cut = (budget, cut)
            if cut.first != was.first:
                self._note_cut()
                await self._announce_cut(cut, budget)
        self._note_sent(taken + ledger.opening_tokens + cut.head_tokens + ledger.tokens_from(cut.first), limit)
        return [*history[: ledger.opening], *cut.head, *history[cut.first :]]

    def _recall(self, budget: int | None, prompt: int) -> None:
        """Take over the last cut of a stored history, what the model has counted of its last request, and its refusal.

        Without a budget the whole history is sent: it is searched, and not measured.
        """
        ledger, self._recalls = self._ledger, False
        if len(self.transcript) < 2:
            return
        is_whole = not ledger.exceeds(0 if budget is None else budget * self.compact_threshold - prompt)
        known = recall(self.transcript, ledger, ledger.opening if budget is None else ledger.start)
        if known.cut is not None and self._cut is None:
            self._cut = (known.budget, known.cut)
        if known.most < self._most and known.budget == budget and known.model == self._window[0]:
            self._listen()
            self._most = known.most
        cut = known.cut if known.budget == budget else None  # of this window: the answer may be one to more than that
        if known.answer is not None and (cut is not None or is_whole):
            first, head = (cut.first, cut.head_tokens) if cut else (ledger.opening, 0)
            before = ledger.opening_tokens + head + ledger.tokens_from(first) - ledger.tokens_from(known.answer)
            self._listen()
            self._scale = max(1.0, known.input_tokens / max(1, prompt + (self._tools or 0) + before))

    def _note_sent(self, tokens: float, limit: float) -> None:
        self._sent = tokens
        if self._tools is None and tokens > limit * _LARGE:
            self._listen()

    def _listen(self) -> None:
        """Count the tools, and hear what the model counts, from now on: of short requests nobody needs to know."""
        if self._tools is None and self._coordinator is not None:
            self._tools = tokens_of_tools(self._coordinator.get("tools") or {})
            self._sent += self._tools
            self._coordinator.hooks.register(PROVIDER_RESPONSE, self._hear_usage, _LAST, "context-simple")
            self._coordinator.hooks.register(PROVIDER_ERROR, self._hear_error, _LAST, "context-simple")

    async def _hear_usage(self, event: str, data: dict[str, Any]) -> None:
        self._most, self._refused, self._before = self._most * RISE, inf, None
        told = read_input_tokens(data.get("usage"))
        if told and self._sent:
            self._scale = max(1.0, told / self._sent)

    async def _hear_error(self, event: str, data: dict[str, Any]) -> None:
        """Take back the cuts for a refused request when the shorter ones were refused, too: they were of no use."""
        error = data.get("error")
        if self._before is not None and isinstance(error, dict) and error.get("type") == "ContextLengthError":
            self._refused = self._sent * min(self.compact_threshold, _REFUSED)
            (self._most, self._cut), self._before = self._before, None
            self._note_cut()

    def _note_cut(self) -> None:
        """Have the next message keep the cut."""
        self._fresh_cut = describe_cut(self._cut[1], self._cut[0], self._most, self._window[0]) if self._cut else None

    async def _announce_cut(self, cut: Cut, budget: int | None) -> None:
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


def read_window(provider: Any) -> tuple[str, int | None]:
    """Return a provider's id with its model, and its context window less the room for its answer (at most half).

    They are '' and None where the provider does not say.
    """
    info = getattr(provider, "get_info", None)
    about = info() if callable(info) else None
    if about is None:
        return "", None
    defaults = getattr(about, "defaults", None)
    defaults = defaults if isinstance(defaults, dict) else {}
    model = f"{getattr(about, 'id', '')}/{defaults.get('model')}"
    window, answer = defaults.get("context_window"), defaults.get("max_output_tokens")
    if not isinstance(window, int) or window < 1:
        return model, None
    return model, window - min(answer, window // 2) if isinstance(answer, int) else window
