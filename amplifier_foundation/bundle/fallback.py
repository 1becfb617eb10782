"""Let the next preferred provider of a session answer while one is out: overloaded, at its rate limit or out of quota.

The providers stay as they are mounted. A `FallbackProvider` takes the place of the first preference, so any loop has
it. The context fits each request to the window of the provider that is asked. The metadata of an answer says which
provider gave it, and the event `provider:fallback` announces it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import slotted
from amplifier_core.llm_errors import (
    ContextLengthError,
    InvalidRequestError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
)
from amplifier_core.message_models import make_request
from amplifier_core.utils.secrets import redact_text

from .aliases import resolve_alias
from .preferences import find_mounted, is_glob_pattern, read_preferences, resolve_model_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        """Describe the choice that the next request is for."""
        return self._in_order()[0].provider.get_info()

    def list_models(self) -> Any:
        """Return the models of the first choice, plain or awaitable."""
        return self._choices[0].provider.list_models()

    def parse_tool_calls(self, response: Any) -> Any:
        """Return the tool calls of a response."""
        return self._last.provider.parse_tool_calls(response)

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        """Return the answer of the first choice that is not out; those that are out are asked when no other answers.

        Raises the error of the first choice if it is not out. Otherwise raises the first error that may pass, else the
        one of the first choice, with the other errors in its text. A loop can answer a refused length or format: this
        error of a stand-in is raised at once, and may pass, as the first choice may be back.
        """
        first, *others = self._in_order()
        failed: list[tuple[Choice, Exception]] = []
        reason = "it was out before"
        for choice in (first, *others):
            if choice is not self._choices[0]:
                await self._announce(choice, reason)
            asked = request if choice is first else await self._fit(request, first, choice)
            try:
                response = await choice.provider.complete(await self._adapt(asked, choice), **kwargs)
            except Exception as error:
                if isinstance(error, OUTAGES):
                    pause = QUOTA_PAUSE if isinstance(error, QuotaExceededError) else PAUSE
                    choice.due = self._now() + (error.retry_after or pause)
                    reason = redact_text(f"{type(error).__name__}: {error}")
                elif choice is self._choices[0]:
                    raise
                elif isinstance(error, ContextLengthError) or (
                    isinstance(error, InvalidRequestError) and request.response_format is not None
                ):
                    error.retryable = True
                    raise _tell_others(error, failed) from None
                failed.append((choice, error))
                continue
            self._last, choice.due = choice, 0.0
            if choice is not self._choices[0]:
                with suppress(AttributeError, ValueError):  # a response of another make may refuse it
                    response.metadata = {**(response.metadata or {}), METADATA: self._describe(choice, reason)}
            return response
        failed.sort(key=lambda each: self._choices.index(each[0]))
        errors = [error for _, error in failed]
        raise _tell_others(next((each for each in errors if getattr(each, "retryable", False)), errors[0]), failed)

    def _in_order(self) -> list[Choice]:
        """Return the choices as they are asked: those that are out come last."""
        now = self._now()
        return sorted(self._choices, key=lambda each: each.due > now)

    async def _fit(self, request: Any, first: Choice, choice: Choice) -> Any:
        """Return the request for `first` with what the context chooses for the window of another choice.

        What a loop has added at the end stays, and other messages than those of the context stay, but for what the
        loop leaves out for a provider (`adapt_messages`).
        """
        context = self._coordinator.get("context")
        adapt = getattr(self._coordinator.get("orchestrator"), "adapt_messages", lambda messages, provider: messages)
        messages, kept = [], request.messages
        if context is not None:
            given = adapt(await context.get_messages_for_request(provider=first.provider), first.provider)
            fitted = await context.get_messages_for_request(provider=choice.provider)
            if given and fitted and _begins_with(kept, make_request(given, None).messages):
                # The last message of the context may have the addition of a hook.
                messages, kept = fitted[:-1], kept[len(given) - 1 :]
        messages = adapt([*messages, *(each.model_dump() for each in kept)], choice.provider)
        return request.model_copy(update={"messages": make_request(messages, None).messages})

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


def _begins_with(messages: Sequence[Any], given: Sequence[Any]) -> bool:
    """Return whether the messages of a request begin with these of a context.

    A system prompt may be another at each request, and the last message may have more.
    """
    own = messages[: len(given)]
    return [each.role for each in own] == [each.role for each in given] and all(
        one.role == "system" or one.content == other.content for one, other in zip(own[:-1], given[:-1], strict=True)
    )


def _tell_others(raised: Exception, failed: list[tuple[Choice, Exception]]) -> Exception:
    """Return an error with the others in its text."""
    others = [f"{choice.name}: {error}" for choice, error in failed if error is not raised]
    if others:
        raised.args = (redact_text(f"{raised} ({'; '.join(others)})"), *raised.args[1:])
    return raised
