"""A storage of the small contract: it saves, loads and knows whole sessions, and no more."""

from __future__ import annotations

from typing import Any


class Shelf:
    """Keep sessions in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        self.kept[session_id] = transcript, metadata

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return self.kept[session_id]

    def exists(self, session_id: str) -> bool:
        return session_id in self.kept
