"""What a provider keeps of a conversation, and messages name: it belongs to one session alone, and to no fork of it."""

from __future__ import annotations

from typing import Any

CONTINUATIONS = frozenset({"response_id", "previous_response_id", "conversation_id", "continuation"})
"""Metadata by which a provider goes on with a conversation that it keeps itself; its name may stand before: openai:…"""


def detached(message: dict[str, Any]) -> dict[str, Any]:
    """Return `message` without its continuation ids: itself when it has none, else a copy."""
    metadata = message.get("metadata")
    if not metadata or (len(metadata) == 1 and "timestamp" in metadata):
        return message
    kept = without_continuations(metadata)
    return message if kept == metadata else {**message, "metadata": kept}


def without_continuations(value: Any) -> Any:
    """Return metadata without the continuation ids in it, however deep."""
    if not isinstance(value, dict):
        return value
    return {key: without_continuations(each) for key, each in value.items() if not _continues(str(key))}


def _continues(key: str) -> bool:
    return key.replace(".", ":").rpartition(":")[2] in CONTINUATIONS
