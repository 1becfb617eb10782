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
from amplifier_providers.errors import (
    STATUS_OF,
    BaseTranslator,
    Kind,
    find_excess,
    find_number,
    find_part,
    name_cause,
    read_retry_after,
)

from .config import KEY_VARIABLE

_KEY = Kind(AuthenticationError, f"Check the API key ({KEY_VARIABLE}, or api_key in the provider's config).")
_QUOTA = Kind(QuotaExceededError, "Add credit or raise the limit in the billing settings of the service.")
_LONG = Kind(ContextLengthError, "Begin a new session, or set max_tokens of the context lower.")
_FILTER = Kind(ContentFilterError, "Reword the request.")
_RATE = Kind(RateLimitError, "Wait, or ask the service for a higher limit.")
_BUSY = Kind(ProviderUnavailableError, "The service has a problem: try again later.")
_LATE = Kind(LLMTimeoutError, "Try again.")
_BY_STATUS = {
    400: Kind(
        InvalidRequestError,
        "Check the model's name, and api and the other keys of the provider's config. "
        "If the session is too long for the model, set context_window there.",
    ),
    401: _KEY,
    402: _QUOTA,
    403: Kind(AccessDeniedError, "The API key is right, but may not do this: ask the owner of the account."),
    404: Kind(NotFoundError, "Check the model's name, base_url, and api (responses or chat)."),
    408: _LATE,
    409: _BUSY,
    413: Kind(ContextLengthError, "The request is too large: send fewer or smaller images and documents."),
    429: _RATE,
    504: _LATE,
    529: Kind(ProviderUnavailableError, "The service is overloaded: try again later."),
}
_BY_WORD = {
    "quota|billing|balance(?!r)": (429, _QUOTA),
    "content_filter|content_policy|bio_policy|misalignment_policy|moderation": (400, _FILTER),
}
"""The parts of a code or a type that tell more than the status, with the status of an error within a stream."""


def classify(codes: tuple[Any, ...], said: str, status: int | None = None) -> tuple[int, Kind]:
    """Return the status and the kind of an error by its code, its type and its words.

    Gateways tell the status of the service behind them as the code of an error within a stream.
    """
    names = [str(code).lower() for code in codes if code]
    told = find_part(_BY_WORD, names)
    if status is None:
        status = find_number(names) or (told[0] if told else find_part(STATUS_OF, names))
    if told is None and (excess := find_excess(status, said, _LONG, names)):
        told = (400, excess)
    status = status or (told[0] if told else 500)
    return status, told[1] if told else _BY_STATUS.get(status) or (_BUSY if status >= 500 else _BY_STATUS[400])


class Refusal(Exception):
    """An error that the service tells within a stream."""

    def __init__(self, code: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Translator(BaseTranslator):
    """Translates the errors of the SDK."""

    provider = "openai"
    keys = re.compile(r"\bsk-[\w*-]{8,}")

    def translate_foreign(self, error: Exception) -> LLMError | None:
        """Return the kernel's error for one of the SDK, of its HTTP client, or of this package."""
        import httpx2
        import openai

        if isinstance(error, Refusal):
            return self._refuse(error.message, (error.code,))
        body = getattr(error, "body", None)
        said = _read_words(body)
        if isinstance(error, openai.APIStatusError):
            wait = read_retry_after(error.response.headers)
            return self._refuse(said, (error.code, error.type), error.status_code, wait)
        cause = error.__cause__ or error
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException | TimeoutError):
            what = "no connection" if isinstance(cause, httpx2.ConnectTimeout) else "no answer"
            return self.make(LLMTimeoutError, f"{what} in time", "Try again, or raise the time limits.")
        if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
            return self.make(
                StreamError, f"the connection broke in the midst of the answer: {name_cause(cause)}", "Try again."
            )
        if isinstance(error, openai.APIConnectionError):
            return self.make(
                NetworkError, f"no connection: {name_cause(cause)}", "Check the network, the proxy and base_url."
            )
        if isinstance(error, openai.APIError):  # within a stream
            return self._refuse(said, (error.code, error.type))
        return None

    def _refuse(
        self, said: Any, codes: tuple[Any, ...], status: int | None = None, wait: float | None = None
    ) -> LLMError:
        words = str(said or "")
        status, kind = classify(codes, words, status)
        if status == 500 and "schema in format" in words:  # Ollama's word for a schema that it cannot enforce
            kind = _BY_STATUS[400]
        return self.refuse(kind, status, words, wait)


def _read_words(body: Any) -> Any:
    """Return what an error says; OpenRouter tells the words of the service behind it in the metadata."""
    if not isinstance(body, dict):
        return body
    message, about = body.get("message"), body.get("metadata")
    raw = about.get("raw") if isinstance(about, dict) else None
    return f"{message}: {raw}" if raw else message


def is_about_reasoning(error: LLMError) -> bool:
    """Whether the service refused items of earlier reasoning: of another model, or of another account."""
    said = str(error).lower()
    return error.status_code in (400, 404) and ("encrypted content" in said or "'reasoning'" in said or "rs_" in said)
