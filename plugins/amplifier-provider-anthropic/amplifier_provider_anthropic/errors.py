"""Translate the SDK's errors into the kernel's: the status and the service's words in one line, and a remedy.

No secret is in them: the API key, other keys and tokens, and a password in an address, read "[REDACTED]".
"""

from __future__ import annotations

import re
from typing import Any

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

_KEY = Kind(AuthenticationError, f"Check the API key ({KEY_VARIABLE}, or api_key in the provider's config).")
_QUOTA = Kind(QuotaExceededError, "Add credit or raise the limit at https://platform.claude.com/settings/billing.")
_LONG = Kind(ContextLengthError, "Begin a new session, or set max_tokens of the context lower.")
_FILTER = Kind(ContentFilterError, "Reword the request.")
_BUSY = Kind(ProviderUnavailableError, "The service has a problem: try again later.")
_LATE = Kind(LLMTimeoutError, "Try again.")
_BY_STATUS = {
    400: Kind(InvalidRequestError, "Check the model's name and the provider's config."),
    401: _KEY,
    402: _QUOTA,
    403: Kind(AccessDeniedError, "The API key is right, but may not do this: ask the owner of the account."),
    404: Kind(NotFoundError, "Check the model's name, and base_url."),
    408: _LATE,
    409: _BUSY,
    413: Kind(ContextLengthError, "The request is too large: send fewer or smaller images and documents."),
    429: Kind(RateLimitError, "Wait, or ask for a higher limit at https://platform.claude.com/settings/limits."),
    504: _LATE,
    529: Kind(ProviderUnavailableError, "The service is overloaded: try again later."),
}
_BY_WORDS = {
    "credit balance is too low": _QUOTA,
    "content filtering policy": _FILTER,
}
"""Of a 400, the service tells the cause in words only."""
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of an error within a stream: that began with 200."""


class Translator(BaseTranslator):
    """Translates the errors of the SDK."""

    provider = "anthropic"
    keys = re.compile(r"sk-ant-[\w-]+")

    def translate_foreign(self, error: Exception) -> LLMError | None:
        """Return the kernel's error for one of the SDK, of its HTTP client, or of this package."""
        import anthropic
        import httpx2

        if isinstance(error, anthropic.APIStatusError):
            return self._translate_status(error)
        cause = error.__cause__ or error
        if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException | TimeoutError):
            what = "no connection" if isinstance(cause, httpx2.ConnectTimeout) else "no answer"
            return self.make(LLMTimeoutError, f"{what} in time", "Try again, or raise the time limits.")
        if isinstance(error, anthropic.APIConnectionError):
            return self.make(
                NetworkError, f"no connection: {name_cause(cause)}", "Check the network, the proxy and base_url."
            )
        if isinstance(error, httpx2.HTTPError):
            return self.make(
                StreamError, f"the connection broke in the midst of the answer: {name_cause(error)}", "Try again."
            )
        return None

    def _translate_status(self, error: Any) -> LLMError:
        status = error.status_code if error.status_code >= 400 else _STATUS_OF.get(error.type or "", 500)
        told = error.body.get("error") if isinstance(error.body, dict) else error.message
        said = error.api_message or (told if isinstance(told, str) and error.body else "")
        kind = _BY_STATUS.get(status) or (_BUSY if status >= 500 else _BY_STATUS[400])
        if status == 400:
            kind = next((found for words, found in _BY_WORDS.items() if words in said.lower()), kind)
        kind = find_excess(status, said, _LONG) or kind
        if status == 429 and "spend_limit" in (error.error_code or ""):
            kind = _QUOTA
        return self.refuse(kind, status, said, read_retry_after(error.response.headers))


def is_about_thinking(error: LLMError) -> bool:
    """Whether the service refused blocks of earlier thinking: of another model, or before a changed history."""
    said = str(error).lower()
    is_meant = "signature" in said or "bound to" in said or "cannot be modified" in said
    return error.status_code == 400 and "thinking" in said and is_meant
