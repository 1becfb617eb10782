"""The service over HTTP, and its errors as the kernel's."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

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
    RateLimitError,
)


class StatusError(Exception):
    def __init__(self, status: int, text: str, retry_after: float | None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class Client:
    def __init__(self, base_url: str, api_key: str) -> None:
        self._url = urlsplit(base_url)
        self._api_key = api_key
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            content = json.dumps(body, default=str).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\nx-api-key: {self._api_key}\r\n"
            writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
            await writer.drain()
            return _read(await reader.read())
        finally:
            writer.close()
            await writer.wait_closed()


def _read(raw: bytes) -> dict[str, Any]:
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    answer: dict[str, Any] = json.loads(body)
    code = int(status.split()[1])
    if code != 200:
        after = headers.get("retry-after")
        raise StatusError(code, answer["error"]["message"], float(after) if after else None)
    return answer


def as_kernel_error(error: Exception, provider: str, model: str) -> LLMError:
    about: dict[str, Any] = {"provider": provider, "model": model}
    if isinstance(error, TimeoutError):
        return LLMTimeoutError(str(error), **about)
    if isinstance(error, OSError):
        return NetworkError(str(error), **about)
    if not isinstance(error, StatusError):
        return LLMError(str(error), **about)
    about["status_code"] = error.status
    if error.status == 429:
        return RateLimitError(str(error), retry_after=error.retry_after, **about)
    if error.status >= 500:
        return ProviderUnavailableError(str(error), retry_after=error.retry_after, **about)
    if error.status == 400 and "too long" in str(error):
        return ContextLengthError(str(error), **about)
    if error.status == 400 and "safety" in str(error):
        return ContentFilterError(str(error), **about)
    named = {401: AuthenticationError, 403: AccessDeniedError, 404: NotFoundError}
    return named.get(error.status, InvalidRequestError)(str(error), **about)
