"""Count refused requests, and warn of them once a minute: a flood is one line, and without a word of a stranger.

Those that have no place in a full queue, or in a store that fails, are told by what runs the trigger.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two warnings, at the least."""
REASONS = {
    400: "the body is no JSON that can be stored, or the delivery's id is none",
    401: "the signature is missing, wrong or too old; check the secret of the sender and {secret_env}, and the clocks",
    403: "a page in a browser called; give the webhook a secret_env",
    405: "the method is not POST",
    408: "the body is slow",
    413: "the body is larger than {max_bytes} bytes; raise max_bytes",
    415: "the body is no text; let the sender use JSON, uncompressed",
    421: "the Host header is none of its names; add it to `hosts`, or let the proxy pass another one",
    429: "more than {rate} requests a minute; raise `rate`",
    503: "too many requests at once, or the store does not answer",
}
"""What each status of a webhook means, with the remedy; the names are those of the configuration."""


class RefusedRequests:
    """The refused requests of a webhook or a server: the first is reported at once, later ones together."""

    def __init__(self, name: str, reasons: Mapping[int, str], facts: Mapping[str, object] | None = None) -> None:
        self._name, self._reasons, self._facts = name, reasons, facts or {}
        self._unreported: Counter[int] = Counter()
        self._pause: asyncio.TimerHandle | None = None

    def note(self, status: int) -> None:
        """Count one that is answered with this status, one of the reasons."""
        self._unreported[status] += 1
        if self._pause is None:
            self._report()

    def close(self) -> None:
        """Report the rest."""
        if self._pause is not None:
            self._pause.cancel()
            self._warn()

    def _report(self) -> None:
        self._pause = asyncio.get_running_loop().call_later(PERIOD, self._report) if self._unreported else None
        self._warn()

    def _warn(self) -> None:
        for status, count in sorted(self._unreported.items()):
            refused = "1 request" if count == 1 else f"{count} requests"
            reason = self._reasons[status].format_map(self._facts)
            logger.warning("%s refused %s with %d within a minute: %s", self._name, refused, status, reason)
        self._unreported.clear()
