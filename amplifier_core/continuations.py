"""Remove the ids of conversations that providers keep: such an id belongs to one session, and to no fork of it."""

from __future__ import annotations

from typing import Any

CONTINUATIONS = frozenset({"response_id", "previous_response_id", "conversation_id", "continuation"})
"""Keys of metadata that continue a provider's own conversation; the provider's name may stand before: `openai:…`."""


def detach(message: dict[str, Any]) -> dict[str, Any]:
    """Return `message` without its continuation ids: itself if it has none, else a copy."""
    metadata = message.get("metadata")
    if not metadata or (len(metadata) == 1 and "timestamp" in metadata):
        return message
    kept = without_continuations(metadata)
    return message if kept == metadata else {**message, "metadata": kept}


def without_continuations(value: Any) -> Any:
    """Return metadata without its continuation ids, at any depth."""
    if not isinstance(value, dict):
        return value
    return {
        key: without_continuations(each)
        for key, each in value.items()
        if str(key).replace(".", ":").rpartition(":")[2] not in CONTINUATIONS
    }
