"""What a request's body says, as far as a store can keep it."""

from __future__ import annotations

import json
from typing import Any

from amplifier_core.storable import to_json

DEEPEST = 64
"""Lists and objects within each other."""


class Unreadable(Exception):
    """A body that cannot be read; `status` is the one to answer with."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


def read_body(content_type: str, body: bytes) -> Any:
    """Return the value of a body that is announced as JSON, else its text. Raises `Unreadable`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise Unreadable(415, f"{kind} is not read; send JSON or text")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(415, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    return _parsed(text) if kind == "application/json" or kind.endswith("+json") else text


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
        if _depth(value) > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        to_json(value, "body").encode("utf-8")
    except RecursionError:
        raise Unreadable(400, "the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise Unreadable(400, "the body holds half of a surrogate pair, which is no text") from None
    except (TypeError, ValueError) as error:
        raise Unreadable(400, f"the body is not JSON that can be kept: {error}") from None
    return value


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return depth
