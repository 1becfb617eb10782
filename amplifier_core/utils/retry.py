"""Call a model again after a failure of the service, and not after a faulty request."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, TypeVar

from ..llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """The number of retries and the delays between them, in seconds.

    `jitter` spreads each delay by ± that fraction; True and None stand for 0.2, False for 0. A wait requested by the
    service (`retry_after`) is honoured even beyond `max_delay`. `min_delay` and `backoff_multiplier` are older names of
    `initial_delay` and `backoff_factor`.
    """

    max_retries: int = 3
    initial_delay: float = 1.0
    max_delay: float = 60.0
    backoff_factor: float = 2.0
    jitter: bool | float | None = None
    honor_retry_after: bool = True
    min_delay: InitVar[float | None] = None
    backoff_multiplier: InitVar[float | None] = None

    def __post_init__(self, min_delay: float | None, backoff_multiplier: float | None) -> None:
        """Take the values of older names, and `jitter` as a fraction."""
        jitter = _JITTER if self.jitter is None or self.jitter is True else float(self.jitter)
        taken = (("initial_delay", min_delay), ("backoff_factor", backoff_multiplier), ("jitter", jitter))
        for name, value in taken:
            if value is not None:
                object.__setattr__(self, name, value)

    def delay(self, attempt: int, error: LLMError) -> float:
        """Return the seconds to wait after failure number `attempt`, counted from 1."""
        import random

        base = self.initial_delay * self.backoff_factor ** (attempt - 1) * error.delay_multiplier
        spread = float(self.jitter or 0)
        waited = min(base * (1 + random.uniform(-spread, spread)), self.max_delay)
        if self.honor_retry_after and error.retry_after is not None:
            return max(waited, error.retry_after)
        return max(0.0, waited)


async def retry_with_backoff(
    operation: Callable[..., Awaitable[T]],
    config: RetryConfig | None = None,
    *,
    on_retry: Callable[[int, float, LLMError], Awaitable[None]] | None = None,
) -> T:
    """Await `operation()` until it succeeds, and return its result.

    Only a retryable `LLMError` is tried again; the last one is raised as it is. `on_retry(attempt, delay, error)` is
    awaited before each wait, `attempt` counted from 1.
    """
    import asyncio

    config = config or RetryConfig()
    attempt = 0
    while True:
        try:
            return await operation()
        except LLMError as error:
            attempt += 1
            if not error.retryable or attempt > config.max_retries:
                raise
            delay = config.delay(attempt, error)
            if on_retry is not None:
                await on_retry(attempt, delay, error)
        await asyncio.sleep(delay)


# The first matching row wins: "context length exceeded" is no mere 400.
_BY_TEXT: tuple[tuple[type[LLMError], tuple[str, ...]], ...] = (
    (
        ContextLengthError,
        (
            "context length",
            "context_length",
            "context window",
            "maximum context",
            "too many tokens",
            "prompt is too long",
            "input is too long",
        ),
    ),
    (ContentFilterError, ("content filter", "content_filter", "content policy", "safety", "blocked by")),
    (QuotaExceededError, ("insufficient_quota", "insufficient quota", "quota exceeded", "exceeded your current quota")),
    (RateLimitError, ("rate limit", "rate_limit", "too many requests")),
    (AuthenticationError, ("api key", "api_key", "unauthorized", "authentication", "invalid credentials")),
    (AccessDeniedError, ("permission denied", "access denied", "forbidden")),
    (LLMTimeoutError, ("timed out", "timeout", "deadline exceeded")),
    (NetworkError, ("connection error", "connection refused", "connection reset", "name resolution")),
    (ProviderUnavailableError, ("overloaded", "service unavailable", "bad gateway", "internal server error")),
    (NotFoundError, ("model not found", "does not exist", "not found")),
)

_BY_STATUS: dict[int, type[LLMError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: AccessDeniedError,
    404: NotFoundError,
    408: LLMTimeoutError,
    413: ContextLengthError,
    422: InvalidRequestError,
    429: RateLimitError,
    504: LLMTimeoutError,
}

# For these the text may say more: 400 is sent for an over-long context, 429 for an empty account.
_VAGUE_STATUS = frozenset({400, 413, 422, 429})


def classify_error_message(
    message: str, *, status_code: int | None = None, provider: str | None = None
) -> type[LLMError]:
    """Return the class of error for a service's `message` and HTTP `status_code`; `LLMError` if they are unclear.

    `provider` is there for callers that know theirs; the words are the same for all.
    """
    if status_code is not None and status_code not in _VAGUE_STATUS:
        named = _BY_STATUS.get(status_code, ProviderUnavailableError if status_code >= 500 else None)
        if named is not None:
            return named
    text = message.lower()
    for error, words in _BY_TEXT:
        if any(word in text for word in words) and (status_code != 429 or issubclass(error, RateLimitError)):
            return error
    return _BY_STATUS.get(status_code or 0, LLMError)
