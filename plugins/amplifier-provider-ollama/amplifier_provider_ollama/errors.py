"""Translate the SDK's errors into the kernel's: the status and the server's words in one line, and a remedy.

No secret is in them: the key, other keys and tokens, and a password in an address, read "[REDACTED]".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    RateLimitError,
    StreamError,
)
from amplifier_providers.errors import BaseTranslator, Kind, find_excess, name_cause, read_retry_after

from .config import ADDRESS_VARIABLE, KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_LONG = Kind(ContextLengthError, "Begin a new session, or set context_window of the provider higher.")
_FORMAT = Kind(InvalidRequestError, "Ask for JSON of a simpler schema.")
_BUSY = Kind(ProviderUnavailableError, "The server has a problem: see its log, and try again later.")
_LATE = Kind(LLMTimeoutError, "Try again.")
_BY_STATUS = {
    400: Kind(InvalidRequestError, "Check the model's name and the provider's config."),
    401: Kind(AuthenticationError, f"Name a key with api_key: ${{{KEY_VARIABLE}}}, or run: ollama signin"),
    403: Kind(AccessDeniedError, "The server refuses this: ask its owner, or check the plan at https://ollama.com."),
    404: Kind(NotFoundError, f"Check base_url, or {ADDRESS_VARIABLE}."),
    408: _LATE,
    413: Kind(ContextLengthError, "The request is too large: send fewer or smaller images."),
    429: Kind(RateLimitError, "Wait, or choose a local model."),
    503: Kind(ProviderUnavailableError, "The server is busy: try again later."),
    504: _LATE,
}
_BY_WORDS = {
    "does not support tools": Kind(
        InvalidRequestError, "Choose a model with tools: https://ollama.com/search?c=tools lists them."
    ),
    "schema in format": _FORMAT,
    "parse grammar": _FORMAT,
    "more system memory": Kind(ConfigurationError, "Choose a smaller model, or set context_window lower."),
    "out of memory": Kind(ConfigurationError, "Choose a smaller model, or set context_window lower."),
}
"""The words that tell more than the status."""


class Refusal(Exception):
    """An answer with the status of an error."""

    def __init__(self, status: int, said: str, headers: Mapping[str, str]) -> None:
        super().__init__(said)
        self.status = status
        self.wait = read_retry_after(headers)


class Translator(BaseTranslator):
    """Translates the errors of the SDK."""

    provider = "ollama"

    def __init__(self, model: str, secrets: Iterable[str | None], address: str) -> None:
        super().__init__(model, secrets)
        self._address = address

    def translate_foreign(self, error: Exception) -> LLMError | None:
        """Return the kernel's error for one of the SDK, of its HTTP client, or of this package."""
        import httpx
        import ollama

        if isinstance(error, Refusal):
            return self._refuse(str(error), error.status, error.wait)
        if isinstance(error, ollama.ResponseError):  # within a stream, which began with 200
            return self._refuse(error.error, 500, None)
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no answer"
            return self.make(LLMTimeoutError, f"{what} in time", "Try again, or raise the time limits.")
        if isinstance(error, httpx.ConnectError | ConnectionError):
            remedy = f"Start it with: ollama serve, or check base_url and {ADDRESS_VARIABLE}."
            return self.make(NetworkError, f"no Ollama answers at {self._address}", remedy)
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            return self.make(
                StreamError, f"the connection broke in the midst of the answer: {name_cause(error)}", "Try again."
            )
        if isinstance(error, httpx.HTTPError):
            return self.make(
                NetworkError, f"no connection: {name_cause(error)}", "Check the network, the proxy and base_url."
            )
        return None

    def _refuse(self, said: str, status: int, wait: float | None) -> LLMError:
        words = said.lower()
        kind = _BY_STATUS.get(status) or (_BUSY if status >= 500 else _BY_STATUS[400])
        kind = next((found for phrase, found in _BY_WORDS.items() if phrase in words), kind)
        kind = find_excess(status, said, _LONG) or kind
        if status == 404 and "model" in words:
            kind = kind._replace(remedy=f"Run: ollama pull {self.model}")
        return self.refuse(kind, status, said, wait)


def is_about_thinking(error: LLMError) -> bool:
    """Whether the server refused to let the model think."""
    return error.status_code == 400 and "support thinking" in str(error).lower()
