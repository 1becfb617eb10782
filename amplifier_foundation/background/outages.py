"""Wait for an absent provider, its key, or the network: events are postponed, at the cost of no attempt."""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.frozen import slotted

from ..sessions.failures import causes_of

if TYPE_CHECKING:
    from collections.abc import Container
    from datetime import datetime

    from amplifier_core.clock import Clock
    from amplifier_core.llm_errors import LLMError

PROVIDER = "provider"
"""The component with the problem when a provider is out."""
MACHINE = "machine"
"""The component with the problem when the machine has no free file descriptor, or starts no process."""
PATIENCE = 3
"""Failures in a row after which another event is tried, at once."""
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
    due: datetime | None = None
    """The same moment by the wall clock, which goes on while a machine is suspended. The earlier of both counts."""
    pause: float = 0.0
    """Seconds, after the last failure."""
    needs_person: bool = False
    """Whether the last failure was one of a key or of the environment: a person has to mend it."""
    _failed: set[str] = field(default_factory=set)
    """Ids of the deliveries that failed since the last answer."""
    _suspect: set[str] = field(default_factory=set)
    """Ids of deliveries that failed while others were answered."""
    is_probing: bool = False
    """Whether the next event to be tried is another one: the failures may be those of the first alone."""
    _passed: dict[str, None] = field(default_factory=dict)
    """Ids of the deliveries that failed in a probe, or before one, in their order."""
    _in_row: int = 0
    """Failures since the last probe."""

    def excuses(self, delivery_id: str) -> bool:
        """Return whether the failure of a delivery is one of the service."""
        return delivery_id not in self._suspect

    def add(
        self, delivery_id: str, clock: Clock, pause: float, *, needs_person: bool = False, asked: bool = False
    ) -> None:
        """Note a failure. The next try is `pause` seconds from now; a probe comes at once, unless that was `asked`.

        A probe follows the first event at once: so an event goes before an earlier one only if that alone fails.
        """
        self.failures, self.pause, self.needs_person = self.failures + 1, pause, needs_person
        self._failed.add(delivery_id)
        was_probe = self.is_probing
        self._in_row = 0 if was_probe else self._in_row + 1
        self.is_probing = self._in_row == PATIENCE
        if was_probe or self.is_probing:
            self._passed[delivery_id] = None
        if pause > self.seconds_left(clock) and (asked or not self.is_probing):
            self._wait(clock)

    def holds(self, waiting: Container[str]) -> list[str]:
        """Return which of the `waiting` deliveries are not to be tried now.

        Of those that failed in probes, or before them, the first alone is tried, and in a probe none: the failures may
        be their own.
        """
        passed = [each for each in self._passed if each in waiting]
        return passed if self.is_probing else passed[1:]

    def end_probe(self, clock: Clock) -> None:
        """Note that there is no other event to try: the next probes begin with the first again."""
        if self.is_probing:
            self.is_probing, self._in_row = False, 0
            self._passed.clear()
            self._wait(clock)

    def begin(self, clock: Clock) -> float | None:
        """Let one session try, and return the time of the next one, which an answer or a failure changes."""
        if self.failures:
            self._wait(clock)
        return self.until

    def end(self) -> None:
        """Note that the provider has answered."""
        self.failures, self.until, self.due, self.needs_person = 0, None, None, False
        self._suspect |= self._failed
        self._failed.clear()
        self.is_probing, self._in_row = False, 0
        self._passed.clear()

    def forget(self, delivery_id: str) -> None:
        """Forget a delivery that is done or dead."""
        self._failed.discard(delivery_id)
        self._suspect.discard(delivery_id)
        self._passed.pop(delivery_id, None)

    def seconds_left(self, clock: Clock) -> float:
        """Return the seconds until sessions may begin; 0 without an outage."""
        if self.until is None or self.due is None:
            return 0.0
        return max(0.0, min(self.until - clock.monotonic(), (self.due - clock.now()).total_seconds()))

    def _wait(self, clock: Clock) -> None:
        self.until = clock.monotonic() + self.pause
        self.due = clock.now() + timedelta(seconds=self.pause)


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


def waits_for_person(error: BaseException) -> bool:
    """Return whether all events fail alike until a person mends a key, or the network of this machine."""
    from amplifier_core.llm_errors import AuthenticationError

    marks = ("lacks_key", "is_of_environment")
    return any(
        isinstance(each, AuthenticationError) or any(getattr(each, mark, False) for mark in marks)
        for each in causes_of(error)
    )
