"""Wake a background session by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, DurableStore

    from ..bundle.background_config import BackgroundSessionConfig


async def fire_by_hand(
    store: DurableStore,
    plugins: Plugins,
    project: str,
    bundle: str,
    session: BackgroundSessionConfig,
    data: Mapping[str, Any],
) -> Delivery | None:
    """Enqueue an event with `data` for a background session of a bundle, as far as its gate and plugins let it in.

    The delivery's `state` and `reason` say whether it was refused or skipped. None: an equal event waits already.
    Raises `PluginError` for a plugin that fails when it is asked.
    """
    from amplifier_core.clock import SystemClock
    from amplifier_core.triggers import TriggerEvent, TriggerType

    from .admission import Gate
    from .keys import MANUAL, manual_key, queue_key

    queue = queue_key(bundle, session.name)
    event, gate = TriggerEvent(TriggerType.MANUAL, MANUAL, data=dict(data)), Gate(session, SystemClock())
    refused = await gate.refusal(store, plugins, (project, queue), None, event)
    admission = None if refused is not None else gate.admission(event)
    key = manual_key(queue, session.triggers)
    return await store.enqueue(project, queue, key, event, refused=refused, admission=admission)
