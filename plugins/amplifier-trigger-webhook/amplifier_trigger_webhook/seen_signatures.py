"""Remember the signatures of requests, also over a restart: a repeated request is no new event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_SIGNATURES = 100_000
"""Signatures to recognise again; the oldest go first."""


class SeenSignatures:
    """The signatures of one webhook, each with the key of its first request.

    Those of stored events come back after a restart: `changes` go into the trigger's state with the event.
    """

    def __init__(self, state: Mapping[str, Any], lifetime: float) -> None:
        self._lifetime = lifetime
        by_time = sorted(state.items(), key=lambda item: float(item[1][0]))
        self._seen: dict[str, tuple[float, str]] = {digest: (until, key) for digest, (until, key) in by_time}
        self._stored = set(self._seen)

    def key_of(self, digest: str, key: str, now: float) -> str:
        """Return the key of the first request with this signature: `key`, if this is the first one."""
        return self._seen.setdefault(digest, (now + self._lifetime, key))[1]

    def is_stored(self, digest: str) -> bool:
        """Return whether the event of a request with this signature is stored."""
        return digest in self._stored

    def mark_stored(self, digest: str) -> None:
        """Note that the event is stored."""
        self._stored.add(digest)

    def changes(self, digest: str, now: float) -> dict[str, Any]:
        """Return the changes of the state: this signature comes, and those that are too old or too many go."""
        changes: dict[str, Any] = {}
        while (oldest := next(iter(self._seen))) != digest:
            if self._seen[oldest][0] >= now and len(self._seen) <= MOST_SIGNATURES:
                break
            del self._seen[oldest]
            self._stored.discard(oldest)
            changes[oldest] = None
        return {**changes, digest: list(self._seen[digest])}
