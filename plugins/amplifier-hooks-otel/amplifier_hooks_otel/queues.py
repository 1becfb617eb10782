"""Make the span of each ended delivery, and measure the queues of running bundles."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from .ids import Place, delivery_span, trace_id_of, turn_span
from .records import ATTEMPTS, DEAD, HANDLED, OLDEST, RUNNING, SPAWNED, WAITING, Measurement, SpanRecord
from .sampling import is_sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import Delivery

    from .pipeline import Pipeline

CAPABILITY = "background.queues"
"""The capability of the session above the background sessions of a running bundle."""
PATIENCE = 5.0
"""Seconds for the store to count."""

_STATES = {"pending": WAITING, "claimed": RUNNING, "dead": DEAD}

watched: list[QueueSpans] = []
"""The bundles that run in this process and mount the hook: without one, the plugin does nothing."""


class QueueSpans:
    """The spans and metrics of one bundle's queues; `queues` is the capability `background.queues`."""

    def __init__(self, queues: Any, pipeline: Pipeline, parent_id: str) -> None:
        self.queues = queues
        self.parent_id = parent_id
        """The session above the background sessions."""
        self._pipeline = pipeline

    def begin(self) -> Callable[[], None]:
        """Watch the queues; return how to end that."""
        watched.append(self)
        remove = self._pipeline.add_source(self.measure)

        def end() -> None:
            watched.remove(self)
            remove()

        return end

    async def end_delivery(self, delivery: Delivery) -> None:
        """Make the span and the measurements of an ended delivery."""
        cause = await self.queues.find_cause(delivery.event)
        trace_id = trace_id_of(cause.root)
        above = None
        if cause.delivery_id is not None:
            above = Place(trace_id, delivery_span(cause.delivery_id))
        elif cause.session_id is not None:
            above = Place(trace_id, turn_span(cause.session_id, 1))
        now = time_ns()
        start = min(now, int(delivery.created.timestamp() * 1e9))
        place = Place(trace_id, delivery_span(delivery.delivery_id))
        span = SpanRecord(f"process {delivery.queue}", place, above, start, "consumer", now)
        span.attributes = _describe(delivery)
        span.error = "dead_letter" if delivery.state == "dead" else None
        if is_sampled(trace_id, self._pipeline.settings.sample_ratio):
            self._pipeline.put(span)
        about = {"messaging.destination.name": delivery.queue, "amplifier.delivery.state": delivery.state}
        self._pipeline.put(Measurement(HANDLED, (now - start) / 1e9, about))
        self._pipeline.put(Measurement(ATTEMPTS, delivery.attempts, about))

    def end_spawn(self, outcome: SpawnOutcome) -> None:
        """Measure the end of a session that a session made."""
        self._pipeline.put(Measurement(SPAWNED, outcome.duration, {"amplifier.session.status": outcome.status}))

    def measure(self) -> Iterator[Measurement]:
        """Yield the state of the queues; called in the thread of the pipeline."""
        counts: Counter[tuple[str, str]] = Counter()
        oldest: dict[str, float] = {}
        now = datetime.now(UTC)
        try:
            rows = asyncio.run(asyncio.wait_for(self.queues.count(), PATIENCE))
        except Exception:  # the store is closed, or busy: there is nothing to tell this time
            return
        for row in rows:
            oldest.setdefault(row.queue, 0.0)
            if row.waiting_since is not None:
                age = (now - row.waiting_since).total_seconds()
                oldest[row.queue] = max(oldest[row.queue], age)
            for state, metric in _STATES.items():
                counts[row.queue, metric] += row.counts.get(state, 0)
        for (queue, metric), count in counts.items():
            yield Measurement(metric, count, {"messaging.destination.name": queue})
        for queue, age in oldest.items():
            yield Measurement(OLDEST, age, {"messaging.destination.name": queue})


def _describe(delivery: Delivery) -> dict[str, Any]:
    event = delivery.event
    facts = {
        "messaging.system": "amplifier",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": delivery.queue,
        "messaging.message.id": event.event_id,
        "gen_ai.conversation.id": delivery.session_id,
        "amplifier.delivery.id": delivery.delivery_id,
        "amplifier.delivery.state": delivery.state,
        "amplifier.delivery.attempts": delivery.attempts,
        "amplifier.trigger": delivery.trigger,
        "amplifier.trigger.type": event.type.value,
        "amplifier.event.name": event.event_name,
        "amplifier.event.depth": event.depth,
    }
    return {name: value for name, value in facts.items() if value is not None}
