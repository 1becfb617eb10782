"""Translate the SDK's errors into the kernel's: the status and the service's words in one line, and a remedy.

No secret is in them: the API key, other keys and tokens, and a password in an address, read "[REDACTED]".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import (
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
    StreamError,
)
from amplifier_providers.errors import BaseTranslator, Kind, find_excess, name_cause, read_retry_after

from .config import KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping


_KEY = Kind(AuthenticationError, f"Check the API key ({KEY_VARIABLE}, or api_key in the provider's config).")
_QUOTA = Kind(QuotaExceededError, "Wait for the next day, or set up billing at https://aistudio.google.com.")
_LONG = Kind(ContextLengthError, "Begin a new session, or set max_tokens of the context lower.")
_BUSY = Kind(ProviderUnavailableError, "The service has a problem: try again later.")
_LATE = Kind(LLMTimeoutError, "Try again.")
_FORBIDDEN = Kind(AccessDeniedError, "The API key is right, but may not do this: see https://aistudio.google.com.")
_MOVED = Kind(NotFoundError, "The address sends requests elsewhere: check base_url.")
_BY_STATUS = {
    400: Kind(InvalidRequestError, "Check the model's name and the provider's config."),
    401: _KEY,
    403: _FORBIDDEN,
    404: Kind(NotFoundError, "Check the model's name, and base_url."),
    408: _LATE,
    413: Kind(ContextLengthError, "The request is too large: send fewer or smaller images and documents."),
    429: Kind(RateLimitError, "Wait, or ask for a higher limit at https://aistudio.google.com."),
    499: _LATE,
    503: Kind(ProviderUnavailableError, "The service is overloaded: try again later."),
    504: _LATE,
}
_BY_WORDS = {
    "api key not valid": _KEY,
    "api_key_invalid": _KEY,
    "api key expired": _KEY,
    "payload size exceeds": _BY_STATUS[413],
    "location is not supported": _FORBIDDEN,
    "perday": _QUOTA,
    "credits are depleted": _QUOTA,
    "safety": Kind(ContentFilterError, "Reword the request."),
}
"""The words of a 400 or a 429, or of its details, that tell more than the status."""
_DELAY = re.compile(r"(\d+(?:\.\d*)?)s")


class Refusal(Exception):
    """An answer with the status of an error; `body` is its JSON, or its text."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


class Translator(BaseTranslator):
    """Translates the errors of the SDK."""

    provider = "gemini"
    keys = re.compile(r"\b(?:AIza|AQ\.)[\w-]{8,}")

    def translate_foreign(self, error: Exception) -> LLMError | None:
        """Return the kernel's error for one of the SDK, of its HTTP client, or of this package."""
        import httpx
        from google.genai import errors

        if isinstance(error, Refusal):
            return self._refuse(error.status, error.body, read_retry_after(error.headers))
        if isinstance(error, errors.APIError):  # within a stream, which began with 200
            return self._refuse(error.code if isinstance(error.code, int) else 500, error.details, None)
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no answer"
            return self.make(LLMTimeoutError, f"{what} in time", "Try again, or raise the time limits.")
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            return self.make(
                StreamError, f"the connection broke in the midst of the answer: {name_cause(error)}", "Try again."
            )
        if isinstance(error, httpx.HTTPError):
            return self.make(
                NetworkError, f"no connection: {name_cause(error)}", "Check the network, the proxy and base_url."
            )
        return None

    def _refuse(self, status: int, body: Any, wait: float | None) -> LLMError:
        told = body[0] if isinstance(body, list) and body else body
        told = told.get("error", told) if isinstance(told, dict) else told
        message = told.get("message") if isinstance(told, dict) else told
        kind = _BY_STATUS.get(status) or (_BUSY if status >= 500 else _BY_STATUS[400] if status >= 400 else _MOVED)
        if status in (400, 429):
            words = json.dumps(told, default=str).lower()
            kind = next((found for phrase, found in _BY_WORDS.items() if phrase in words), kind)
        kind = find_excess(status, str(message), _LONG) or kind
        return self.refuse(kind, status, str(message or ""), wait if wait is not None else _read_delay(told))


def _read_delay(told: Any) -> float | None:
    """Return the seconds to wait of an error's details, as in `"retryDelay": "34s"`."""
    details = told.get("details") if isinstance(told, dict) else None
    delays = [each.get("retryDelay") for each in details or () if isinstance(each, dict)]
    found = next((match for delay in delays if (match := _DELAY.fullmatch(str(delay)))), None)
    return float(found[1]) if found else None


def is_about_signatures(error: LLMError) -> bool:
    """Whether the service refused the signatures of earlier thinking: of another model, or of another account."""
    said = str(error).lower()
    return error.status_code == 400 and "signature" in said
