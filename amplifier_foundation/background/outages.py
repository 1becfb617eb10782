"""Wait for a provider that is out: its events are postponed, and that costs them no attempt."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from amplifier_core.frozen import slotted

if TYPE_CHECKING:
    from amplifier_core.llm_errors import LLMError

PROVIDER = "provider"
"""The component with the problem when a provider is out."""
LONGEST_WAIT = 86_400.0
"""Seconds at most until a provider is asked again, whatever it says."""


@slotted
class Outage:
    """The failures of the providers of one background session since its last answer.

    One event that fails while others are answered is no outage: its next failures count as attempts.
    """

    failures: int = 0
    until: float | None = None
    """No session begins before, in seconds of the monotonic clock: a clock that is set back prolongs nothing."""
    pause: float = 0.0
    """Seconds, after the last failure."""
    _failed: set[str] = field(default_factory=set)
    """Ids of the deliveries that failed since the last answer."""
    _suspect: set[str] = field(default_factory=set)
    """Ids of deliveries that failed while others were answered."""

    def excuses(self, delivery_id: str) -> bool:
        """Return whether the failure of a delivery is one of the service."""
        return delivery_id not in self._suspect

    def add(self, delivery_id: str, now: float, pause: float) -> None:
        """Note a failure: the next try is `pause` seconds from now."""
        self.failures, self.pause = self.failures + 1, pause
        self._failed.add(delivery_id)
        self.until = max(now + pause, self.until or 0.0)

    def begin(self, now: float) -> float | None:
        """Let one session try, and return the time of the next one, which an answer or a failure changes."""
        if self.failures:
            self.until = now + self.pause
        return self.until

    def end(self) -> None:
        """Note that the provider has answered."""
        self.failures, self.until = 0, None
        self._suspect |= self._failed
        self._failed.clear()

    def forget(self, delivery_id: str) -> None:
        """Forget a delivery that is done or dead."""
        self._failed.discard(delivery_id)
        self._suspect.discard(delivery_id)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until sessions may begin; 0 without an outage."""
        return max(0.0, self.until - now) if self.until is not None else 0.0


def asked_wait(error: LLMError | None) -> float | None:
    """Return the seconds that a provider wants to be left alone, up to a day; None if it does not say.

    Less than a second, as of a date that is over, says nothing: the pauses grow, then.
    """
    wait = error.retry_after if error is not None else None
    return min(wait, LONGEST_WAIT) if isinstance(wait, int | float) and wait >= 1 else None


def is_of_service(error: LLMError) -> bool:
    """Return whether a failure may be one of the service: it did not answer, or not in whole.

    An answer that cannot be used is none: it was paid for, and the next one may be no better.
    """
    from amplifier_core.llm_errors import InvalidToolCallError

    return error.retryable and not isinstance(error, InvalidToolCallError) and not getattr(error, "has_answered", False)
