"""Refuse to send a request, with its prompt and its key, on to another host or port, or on and on; and web pages."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import ConfigurationError, LLMError, StreamError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MOST = 10
"""Redirects of one request that are followed."""
_COUNT = "amplifier_redirects"
"""The name of their number among a request's extensions, which go with it from redirect to redirect."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""Bytes before the first character of a page; the last three are a byte order mark."""


class Redirected(Exception):
    """A request goes elsewhere than to its service; `remedy` is for a person, `kind` the kernel's error."""

    def __init__(self, problem: str, remedy: str, kind: type[LLMError] = ConfigurationError) -> None:
        super().__init__(problem)
        self.remedy, self.kind = remedy, kind


async def refuse_redirect(response: Any) -> None:
    """Raise `Redirected` for an answer that leads to another host or port: a hook for answers of `httpx` and `httpx2`.

    It does so as well for one that leads from https to http, one that takes the content from a request, and the
    eleventh in a row. To read a web page, as of a network with a login, raises it, too.
    """
    if not response.has_redirect_location:
        if response.status_code < 300 and response.headers.get("content-type", "").startswith("text/html"):
            response.aiter_bytes = partial(_read_unless_page, response, response.aiter_bytes)
        return
    status, request = response.status_code, response.request
    here, there = request.url, request.url.join(response.headers["location"])
    address = f"{there.scheme}://{there.netloc.decode('ascii')}"
    before, after = (here.scheme, here.host, here.port), (there.scheme, there.host, there.port)
    if before != after and (before, after) != (("http", here.host, None), ("https", here.host, None)):
        remedy = "Set base_url to that address, if it may have your prompts."
        raise Redirected(f"{status}: it sends requests on to {address}", remedy)
    if status in (301, 302, 303) and request.method == "POST":  # clients make a GET of it
        remedy = "Set base_url so that requests go there at once."
        raise Redirected(f"{status}: it sends requests on to {address}{there.path}, without their content", remedy)
    count = request.extensions.get(_COUNT, 0) + 1
    if count > MOST:
        problem = f"{status}: it has sent a request on {MOST} times, and now to {address}{there.path}"
        raise Redirected(problem, "Check base_url.")
    request.extensions[_COUNT] = count


async def _read_unless_page(response: Any, read: Any, chunk_size: int | None = None) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body. It begins with `<` if it is a page: some servers call all that they send HTML."""
    has_begun = False
    async with aclosing(read(chunk_size)) as pieces:
        async for piece in pieces:
            start = b"" if has_begun else piece.lstrip(_BLANK)
            if start.startswith(b"<"):
                kind = response.headers["content-type"]
                problem = f"{response.status_code}: a web page answers (content type {kind}: is base_url right?)"
                remedy = "Check base_url, and whether the network wants a login in a browser."
                raise Redirected(problem, remedy, StreamError)
            has_begun = has_begun or bool(start)
            yield piece
