"""Check what a provider, a context and a tool answer; only a wrong answer takes time."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from inspect import isawaitable, isgenerator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

_told: set[str] = set()


def refuse(owner: str, wanted: str, answer: object, method: Any) -> TypeError:
    """Return the error for a wrong answer of a module's method; this kernel tells the place of the method with it."""
    error = TypeError(f"{owner} must answer with {wanted}, not with {type(answer).__name__}")
    with suppress(ImportError):  # another kernel has no such function
        from amplifier_core.raised import blame

        blame(error, method)
    return error


def keep_json(metadata: Mapping[str, Any], provider: str) -> Mapping[str, Any]:
    """Return the metadata of an answer without what no store can take; one warning names the provider."""
    if _is_json(metadata):
        return metadata
    kept = {key: value for key, value in metadata.items() if _is_json({key: value})}
    if provider not in _told:
        _told.add(provider)
        wrong = ", ".join([repr(key) for key in metadata if key not in kept])
        logger.warning("provider '%s' answers with metadata that is not JSON; left out: %s", provider, wrong)
    return kept


def refuse_unfinished(value: Any) -> None:
    """Raise `TypeError` for work that is still to be done, and no result: a coroutine, or a generator."""
    is_waiting = isawaitable(value)
    if is_waiting or isgenerator(value) or hasattr(value, "__aiter__"):
        if is_waiting and hasattr(value, "close"):
            value.close()  # Python would blame this loop for it
        raise TypeError(f"its execute returns {type(value).__name__}, and no result")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
