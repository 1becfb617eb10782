"""Refuse to send a request, with its prompt and its key, on to another host."""

from __future__ import annotations

from typing import Any


class Redirected(Exception):
    """A service wants a request to go to another host, or there without encryption."""

    def __init__(self, status: int, address: str) -> None:
        super().__init__(f"{status}: it sends requests on to {address}")


async def refuse_redirect(response: Any) -> None:
    """Raise `Redirected` for an answer that leads to another host: a hook for answers of `httpx` and `httpx2`."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    if there.host != here.host or (here.scheme, there.scheme) == ("https", "http"):
        raise Redirected(response.status_code, f"{there.scheme}://{there.netloc.decode('ascii')}")
