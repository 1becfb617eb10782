"""Make the events that tell how the handling of an event ended."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from amplifier_core.events import SessionEvent

from ..spawning.life import outcome_event

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import Delivery

    from ..bundle.background_config import BackgroundSessionConfig
    from ..spawning.child import Spawn


def completion_events(
    config: BackgroundSessionConfig,
    delivery: Delivery,
    spawn: Spawn,
    outcome: SpawnOutcome,
    now: datetime,
    work: Mapping[str, Any] = MappingProxyType({}),
) -> list[SessionEvent]:
    """Return `session:completed` or `session:error`, and the bundle's own event, if it names one.

    They come from the session, and continue the chain of the handled event. `work` is what else they tell.
    """

    def make_event(name: str, data: dict[str, Any]) -> SessionEvent:
        cause = delivery.event
        return SessionEvent(
            name,
            data,
            delivery.session_id,
            timestamp=now,
            cause=cause.event_id,
            depth=cause.depth,
            project=delivery.project,
        )

    name, data = outcome_event(spawn, outcome)
    facts = {
        "trigger": dict(delivery.event.data),
        "trigger_id": delivery.event.event_id,
        "duration": outcome.duration,
        **work,
    }
    events = [make_event(name, {**data, **facts})]
    failed = outcome.error is not None
    if config.workflow is not None:
        run = {"run": outcome.session_id, "workflow": config.workflow}
        told = {"error": {"message": outcome.error}} if failed else {"outputs": json.loads(outcome.output)}
        events.append(make_event("flow:run:failed" if failed else "flow:run:completed", {**run, **told}))
    custom = config.on_error_emit if failed else config.on_complete_emit
    if custom:
        result = {"error": outcome.error} if failed else {"output": outcome.output}
        session = {"session_name": config.name, "session_id": outcome.session_id}
        events.append(make_event(custom, {**session, **facts, **result}))
    return events
