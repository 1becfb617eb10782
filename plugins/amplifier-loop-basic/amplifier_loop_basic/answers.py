"""Check what a provider, a context and a tool answer; only a wrong answer takes time."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from inspect import isawaitable, isgenerator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifier_core.message_models import ChatResponse

logger = logging.getLogger(__name__)

_ENCODER = json.JSONEncoder(allow_nan=False)
_told: set[str] = set()


def refuse(owner: str, wanted: str, answer: object, method: Any) -> TypeError:
    """Return the error for a wrong answer of a module's method; this kernel tells the place of the method with it."""
    error = TypeError(f"{owner} must answer with {wanted}, not with {type(answer).__name__}")
    with suppress(ImportError):  # another kernel has no such function
        from amplifier_core.raised import blame

        blame(error, method)
    return error


def drop_unstorable(response: ChatResponse, provider: str) -> None:
    """Leave out of the metadata of an answer what no store can take; one warning names the provider.

    An answer that cannot be changed stays as it is.
    """
    metadata: Any = response.metadata
    if not metadata or _is_json(metadata):
        return
    items = metadata.items() if isinstance(metadata, Mapping) else ()
    kept = {key: value for key, value in items if _is_json({key: value})}
    try:
        response.metadata = kept
    except (AttributeError, TypeError, ValueError):  # it is frozen, or a property
        return
    if provider not in _told:
        _told.add(provider)
        wrong = ", ".join([repr(key) for key, _ in items if key not in kept]) or "all of it"
        logger.warning("provider '%s' answers with metadata that is not JSON; left out: %s", provider, wrong)


def refuse_unfinished(value: Any) -> None:
    """Raise `TypeError` for work that is still to be done, and no result: a coroutine, or a generator."""
    is_waiting = isawaitable(value)
    if is_waiting or isgenerator(value) or hasattr(value, "__aiter__"):
        if is_waiting and hasattr(value, "close"):
            value.close()  # Python would blame this loop for it
        raise TypeError(f"its execute returns {type(value).__name__}, and no result")


def _is_json(value: Any) -> bool:
    try:
        _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
