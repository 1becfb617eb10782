"""Ask a model again that has refused a request as too long, with less of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contents import adapt_messages
from .requests import make_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ContextManager, Provider
    from amplifier_core.message_models import ChatRequest, ChatResponse

MOST = 3
"""Further requests: each has about half of the history of the one before."""


def is_too_long(error: Exception) -> bool:
    """Return whether a model has refused a request as longer than it takes."""
    from amplifier_core.llm_errors import ContextLengthError

    return isinstance(error, ContextLengthError)


async def ask_shorter(
    context: ContextManager,
    provider: Provider,
    complete: Callable[[ChatRequest], Awaitable[ChatResponse]],
    given: int,
    refusal: Exception,
    request: ChatRequest,
) -> ChatResponse:
    """Return the answer to a shorter request than the refused one, whose first `given` messages are the context's.

    Raises the last refusal when the context can leave out no more, and the provider's errors.
    """
    compact_harder: Callable[[], None] | None = getattr(context, "compact_harder", None)
    for _ in range(MOST):
        if compact_harder is None:
            break
        compact_harder()
        messages = await context.get_messages_for_request(provider=provider)
        if len(messages) >= given:
            break
        messages = adapt_messages(messages, provider)
        # The last message of the context may have the injections of a hook, and others may follow.
        kept = [*make_request(messages, None).messages[:-1], *request.messages[given - 1 :]]
        request, given = request.model_copy(update={"messages": kept}), len(messages)
        try:
            return await complete(request)
        except Exception as error:
            if not is_too_long(error):
                raise
            refusal = error
    raise refusal
