"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from .rules import Playbook

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "provider-playbook"
_MESSAGES = {
    "list_type": "must be a list",
    "missing": "this key is required",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "string_type": "must be text; put it in quotes",
}


def read_config(config: Mapping[str, Any]) -> Playbook:
    """Return the checked configuration. Raises `ValueError`, as in `rules[0].when.user: …`."""
    try:
        return _read_written(marshal.dumps(dict(config), 2))
    except ValueError:  # a wrong one, or one of values that `marshal` does not know
        return _read(config)


@lru_cache(maxsize=64)
def _read_written(config: bytes) -> Playbook:
    """Read a configuration once for the many sessions of a bundle: a playbook has no state."""
    return Playbook.model_validate(marshal.loads(config))


def _read(config: Mapping[str, Any]) -> Playbook:
    try:
        return Playbook.model_validate(config)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "unknown_key")
        parts = [part for part in problem["loc"] if part not in ("one call", "calls")]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
        path = (path + problem.get("ctx", {}).get("inside", "")).removeprefix(".")
        message = _MESSAGES.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{NAME}: {path}: {message}") from None
