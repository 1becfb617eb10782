"""Store the events of triggers: each is durable, with its place in its queue, before a worker can claim it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core.triggers import TriggerEvent

    from .hosts.leading import Leadership
    from .state import BackgroundSessionState, Engine


async def accept(
    engine: Engine,
    background: BackgroundSessionState,
    trigger: str,
    event: TriggerEvent,
    leadership: Leadership | None = None,
    *,
    local: bool = False,
) -> bool:
    """Store an event; return whether a worker will handle it. The event is durable on return.

    An event of a `local` trigger about a file is handled on this host, which has the file. Raises `StoreUnavailable`,
    also for a store whose folder is gone: a write into it would be lost; `StaleEpoch` when the leadership is over.
    """
    engine.check_folder()
    queue = (background.project, background.queue)
    event = await engine.files.attribute(engine.store, queue, event)
    declared = background.declared.get(trigger)
    refused = await background.gate.refusal(engine.store, engine.plugins, queue, declared, event)
    delay = await background.gate.reserve(engine, background, event) if refused is None else 0.0
    admission = background.gate.admission(event, delay) if refused is None else None
    place = (*queue, trigger)
    if engine.member is None:
        now = engine.clock.now()
        delivery = await engine.store.enqueue(*place, event, refused=refused, admission=admission, now=now)
    else:
        delivery = await engine.member.enqueue(
            place, event, leadership, refused=refused, admission=admission, local=local
        )
    background.last_trigger = event.timestamp
    if delivery is None:
        engine.notify("duplicate", background, event=event, trigger=trigger)
    elif delivery.state in ("refused", "skipped"):
        engine.refuse(background, event, delivery.reason or "", trigger)
    else:
        background.trigger_count += 1
        engine.notify("accepted", background, event=event, trigger=trigger, delivery=delivery)
        if admission is not None and admission.overlap == "replace":
            background.cancel_replaced(delivery)
        background.wake.set()
        return True
    return False
