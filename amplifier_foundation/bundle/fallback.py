"""Let the next preferred provider of a session answer while one is out: overloaded, at its rate limit or out of quota.

The providers stay as they are mounted. A `FallbackProvider` takes the place of the first preference, so any loop has
it. The metadata of an answer says which provider gave it, and the event `provider:fallback` announces it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted
from amplifier_core.llm_errors import LLMError, ProviderUnavailableError, QuotaExceededError, RateLimitError
from amplifier_core.utils.secrets import redact_text

from .aliases import resolve_alias
from .preferences import find_mounted, is_glob_pattern, read_preferences, resolve_model_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.session import AmplifierSession

EVENT = "provider:fallback"
METADATA = "fallback"
"""The member of an answer's metadata: `from` and `provider` by name, the `model` if one is preferred, `reason`."""

OUTAGES = (ProviderUnavailableError, RateLimitError)
"""Errors of a provider that is out; `QuotaExceededError` and `NetworkError` are among them."""
PAUSE, QUOTA_PAUSE = 60.0, 3600.0
"""Seconds until a provider is asked again when it does not say, and when its account has nothing left."""


@slotted
class Choice:
    """One preference: the mounted provider, the model to ask it for, and the time of its next request."""

    name: str
    provider: Any
    model: str | None
    due: float = 0.0


def add_fallback(session: AmplifierSession) -> None:
    """Put a `FallbackProvider` in the place of the first mounted preference when there are two or more of them."""
    coordinator = session.coordinator
    found = [(find_mounted(each.provider, coordinator), each) for each in read_preferences(session.config)]
    mounted: dict[str, Any] = coordinator.get("providers") or {}
    choices = [Choice(name, mounted[name], each.model) for name, each in found if name is not None]
    if len(choices) > 1:
        mounted[choices[0].name] = FallbackProvider(choices, coordinator)


class FallbackProvider:
    """The first choice in all it is asked, but for `complete`: the first choice that is not out answers."""

    priority = 0

    def __init__(
        self, choices: list[Choice], coordinator: ModuleCoordinator, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._choices = choices
        self._coordinator = coordinator
        self._now = now
        self._last = choices[0]
        """The choice with the latest answer: it reads the tool calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choices[0].provider, name)

    @property
    def name(self) -> str:
        """The name of the first choice."""
        return str(self._choices[0].provider.name)

    def get_info(self) -> Any:
        """Describe the first choice."""
        return self._choices[0].provider.get_info()

    def list_models(self) -> Any:
        """Return the models of the first choice, plain or awaitable."""
        return self._choices[0].provider.list_models()

    def parse_tool_calls(self, response: Any) -> Any:
        """Return the tool calls of a response."""
        return self._last.provider.parse_tool_calls(response)

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        """Return the answer of the first choice that is not out; all are asked when all are.

        Raises the error of the first one that may be tried again, else the first error.
        """
        errors: list[LLMError] = []
        now = self._now()
        reason = "it was out before"
        for choice in [each for each in self._choices if each.due <= now] or self._choices:
            if choice is not self._choices[0]:
                await self._announce(choice, reason)
            try:
                response = await choice.provider.complete(await self._adapt(request, choice), **kwargs)
            except OUTAGES as error:
                pause = QUOTA_PAUSE if isinstance(error, QuotaExceededError) else PAUSE
                choice.due = self._now() + (error.retry_after or pause)
                reason = redact_text(f"{type(error).__name__}: {error}")
                errors.append(error)
                continue
            self._last, choice.due = choice, 0.0
            if choice is not self._choices[0]:
                with suppress(AttributeError, ValueError):  # a response of another make may refuse it
                    response.metadata = {**(response.metadata or {}), METADATA: self._describe(choice, reason)}
            return response
        raise next((error for error in errors if error.retryable), errors[0])

    async def _adapt(self, request: Any, choice: Choice) -> Any:
        """Return the request with the preferred model; the first choice has it in its configuration."""
        if choice.model is None or choice is self._choices[0]:
            return request
        if is_glob_pattern(choice.model):
            choice.model = (await resolve_model_pattern(choice.model, choice.name, self._coordinator)).resolved_model
        model = resolve_alias(choice.model, choice.name, self._coordinator) if choice.model else None
        return request.model_copy(update={"model": model})

    def _describe(self, choice: Choice, reason: str) -> dict[str, Any]:
        about = {"from": self._choices[0].name, "provider": choice.name, "reason": reason}
        return {**about, "model": choice.model} if choice.model else about

    async def _announce(self, choice: Choice, reason: str) -> None:
        await self._coordinator.hooks.emit(EVENT, self._describe(choice, reason))
