"""Find the errors that gateways send with the status of a success."""

from __future__ import annotations

from typing import Any

from .errors import STATUS_OF, find_number, find_part

LARGEST = 65_536
"""Bytes of the largest answer that is looked into; one of unknown size may be a stream."""


async def reveal_error(response: Any) -> None:
    """Give an error in JSON its status, if it came with 200: a hook for answers of `httpx` and `httpx2`.

    The SDK and the hooks behind this one read it as any other error.
    """
    size = response.headers.get("content-length", "")
    is_json = response.headers.get("content-type", "").startswith("application/json")
    if response.status_code != 200 or not is_json or not size.isdecimal() or int(size) > LARGEST:
        return
    await response.aread()
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return
    error = body.get("error") if isinstance(body, dict) else None
    if error:
        facts = error if isinstance(error, dict) else {"type": str(error).replace(" ", "_")}
        names = [str(facts[name]).lower() for name in ("code", "type", "status") if facts.get(name)]
        response.status_code = find_number(names) or find_part(STATUS_OF, names) or 500
