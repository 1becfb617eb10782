"""Read the body of a request as JSON or text, within the limits of a store."""

from __future__ import annotations

import json
from typing import Any

from amplifier_core.json_values import to_json

DEEPEST = 64
"""Lists and objects within each other."""


class UnreadableBody(Exception):
    """A body cannot be read; `status` is for the answer."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


def read_body(content_type: str, body: bytes) -> Any:
    """Return the value of a body of a JSON type, else its text. Raises `UnreadableBody`."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise UnreadableBody(415, f"{kind} is not supported; send JSON or text")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableBody(415, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    return _parse_json(text) if kind == "application/json" or kind.endswith("+json") else text


def _parse_json(text: str) -> Any:
    try:
        value = json.loads(text)
        if _measure_depth(value) > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        to_json(value, "body").encode("utf-8")
    except RecursionError:
        raise UnreadableBody(400, "the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableBody(400, "the body has half of a surrogate pair, which is not text") from None
    except (TypeError, ValueError) as error:
        raise UnreadableBody(400, f"the body is not JSON that can be stored: {error}") from None
    return value


def _measure_depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return depth
