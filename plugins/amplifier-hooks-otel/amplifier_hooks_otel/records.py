"""Define what waits for the exporter: finished spans and measurements, as plain data, and the names of the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ids import Place

Kind = Literal["internal", "client", "consumer"]


@dataclass(slots=True)
class SpanRecord:
    """One span; times are nanoseconds since 1970, and `end` is 0 while it is open."""

    name: str
    place: Place
    parent: Place | None
    start: int
    kind: Kind = "internal"
    end: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[tuple[Place, Mapping[str, Any]], ...] = ()
    error: str | None = None
    """`error.type` of a span that failed."""


class Measurement(NamedTuple):
    """One value for a metric."""

    name: str
    value: float
    attributes: Mapping[str, Any]


class Metric(NamedTuple):
    """A metric; `boundaries` are those of the buckets of a histogram."""

    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str
    boundaries: tuple[float, ...] | None = None


_SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
TOKENS = "gen_ai.client.token.usage"
DURATION = "gen_ai.client.operation.duration"
WAITING = "amplifier.queue.waiting"
RUNNING = "amplifier.queue.running"
DEAD = "amplifier.queue.dead"
OLDEST = "amplifier.queue.oldest.age"
HANDLED = "amplifier.delivery.duration"
ATTEMPTS = "amplifier.delivery.attempts"
SPAWNED = "amplifier.spawn.duration"
DROPPED = "amplifier.otel.dropped"

METRICS = {
    TOKENS: Metric("histogram", "{token}", "Tokens of model calls.", tuple(float(4**power) for power in range(14))),
    DURATION: Metric("histogram", "s", "Durations of model calls.", _SECONDS),
    WAITING: Metric("gauge", "{delivery}", "Deliveries that wait."),
    RUNNING: Metric("gauge", "{delivery}", "Deliveries that are handled now."),
    DEAD: Metric("gauge", "{delivery}", "Dead letters."),
    OLDEST: Metric("gauge", "s", "Age of the oldest unfinished delivery; 0 without one."),
    HANDLED: Metric("histogram", "s", "Seconds from the acceptance of an event to the end of its delivery."),
    ATTEMPTS: Metric("histogram", "{attempt}", "Attempts of ended deliveries.", (1, 2, 3, 5, 8, 13)),
    SPAWNED: Metric("histogram", "s", "Durations of the sessions that sessions make."),
    DROPPED: Metric("counter", "{record}", "Spans and measurements that were dropped."),
}
"""The metrics by name."""
