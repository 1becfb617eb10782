"""Define the errors of providers.

    LLMError
    ├── RateLimitError            retryable
    │   └── QuotaExceededError
    ├── AuthenticationError
    │   └── AccessDeniedError
    ├── ContextLengthError
    ├── ContentFilterError
    ├── InvalidRequestError
    ├── ProviderUnavailableError  retryable
    │   └── NetworkError          retryable
    ├── LLMTimeoutError           retryable
    ├── NotFoundError
    ├── StreamError               retryable
    ├── AbortError
    ├── InvalidToolCallError
    └── ConfigurationError

`retryable` defaults to the class's own value; `amplifier_core.utils.retry` goes by it.
"""

from __future__ import annotations

from math import inf

_UNSET: dict[str, object] = {
    "provider": None,
    "model": None,
    "status_code": None,
    "retryable": False,
    "retry_after": None,
    "delay_multiplier": 1.0,
    "tool_name": None,
}
"""The attributes in `repr`, each with its unset value."""


class LLMError(Exception):
    """Base of every error above.

    `retry_after` is the service's own wait in seconds, also of a number as text; anything else, as a text of words or a
    negative number, is None. `delay_multiplier` stretches the caller's wait. `remedy` is one sentence for a person; a
    provider may set it, and otherwise the program does. `lacks_key` says that a key is missing, `is_of_environment`
    that a person has to mend this machine's network.
    """

    provider: str | None = None
    model: str | None = None
    status_code: int | None = None
    retryable: bool = False
    delay_multiplier: float = 1.0
    remedy: str | None = None
    lacks_key: bool = False
    is_of_environment: bool = False
    _retry_after: float | None = None

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        status_code: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        delay_multiplier: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status_code = status_code
        self.retryable = retryable
        self.retry_after = retry_after
        self.delay_multiplier = delay_multiplier

    @property
    def retry_after(self) -> float | None:
        """The service's own wait in seconds, finite and not negative."""
        return self._retry_after

    @retry_after.setter
    def retry_after(self, seconds: object) -> None:
        try:
            wait = float(seconds)  # type: ignore[arg-type]  # a module gives anything
        except (TypeError, ValueError, OverflowError):
            wait = -1.0
        self._retry_after = wait if 0 <= wait < inf else None

    def __repr__(self) -> str:
        """Return the message and the set attributes: `RateLimitError('Too fast', status_code=429)`."""
        facts = {name: getattr(self, name, unset) for name, unset in _UNSET.items()}
        shown = [f"{name}={value!r}" for name, value in facts.items() if value != _UNSET[name]]
        return f"{type(self).__name__}({', '.join([repr(str(self)), *shown])})"


def _init_retryable(
    self: LLMError,
    message: str,
    *,
    provider: str | None = None,
    model: str | None = None,
    status_code: int | None = None,
    retryable: bool = True,
    retry_after: float | None = None,
    delay_multiplier: float = 1.0,
) -> None:
    LLMError.__init__(
        self,
        message,
        provider=provider,
        model=model,
        status_code=status_code,
        retryable=retryable,
        retry_after=retry_after,
        delay_multiplier=delay_multiplier,
    )


class RateLimitError(LLMError):
    """Too many requests for now."""

    __init__ = _init_retryable


class QuotaExceededError(RateLimitError):
    """The account has nothing left; waiting does not help."""

    __init__ = LLMError.__init__


class AuthenticationError(LLMError):
    """The credentials are missing or wrong."""


class AccessDeniedError(AuthenticationError):
    """The credentials are right and do not allow this."""


class ContextLengthError(LLMError):
    """The request is longer than the model reads."""


class ContentFilterError(LLMError):
    """The service refused the content."""


class InvalidRequestError(LLMError):
    """The service does not understand the request."""


class ProviderUnavailableError(LLMError):
    """The service is down or overloaded."""

    __init__ = _init_retryable


class NetworkError(ProviderUnavailableError):
    """The service could not be reached."""


class LLMTimeoutError(LLMError):
    """The service did not answer in time."""

    __init__ = _init_retryable


class NotFoundError(LLMError):
    """The model, or the address, does not exist."""


class StreamError(LLMError):
    """The stream broke before the response was complete."""

    __init__ = _init_retryable


class AbortError(LLMError):
    """The caller stopped the request."""


class InvalidToolCallError(LLMError):
    """The model's tool call cannot be read; `raw_arguments` is its text."""

    def __init__(
        self,
        message: str,
        *,
        tool_name: str | None = None,
        raw_arguments: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        status_code: int | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, provider=provider, model=model, status_code=status_code, retryable=retryable)
        self.tool_name = tool_name
        self.raw_arguments = raw_arguments


class ConfigurationError(LLMError):
    """The provider's configuration cannot work."""
