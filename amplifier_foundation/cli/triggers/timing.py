"""When a bundle's triggers will fire: asked of those that know, without watching one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.triggers import ScheduledSource, TriggerContext

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ...background.config import BackgroundSessionConfig, TriggerConfig
    from ...bundles.model import Bundle


class Declared(NamedTuple):
    """One trigger of a bundle's background session, and what the store knows it by."""

    session: str
    key: str
    config: TriggerConfig

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.config.name or self.config.module


def declared_in(bundle: Bundle, session: BackgroundSessionConfig) -> Iterator[Declared]:
    """Yield the triggers of a background session, in the order in which they are written."""
    from ...background.lane import lane_key, trigger_key

    lane = lane_key(bundle.name, session.name)
    for number, config in enumerate(session.triggers, start=1):
        yield Declared(session.name, trigger_key(lane, config, number), config)


async def scheduled_source(
    declared: Declared, *, project: str, plugins: Plugins, store: DurableStore
) -> ScheduledSource | None:
    """Return the trigger, configured as if it were started now; None for one that does not know its times.

    Raises `UnknownName`, `TriggerConfigError`.
    """
    trigger = plugins.triggers.get(declared.config.module)()
    if not isinstance(trigger, ScheduledSource):
        return None
    state = await store.trigger_state(project, declared.key)
    bind = getattr(trigger, "bind", None)
    if bind is not None:
        bind(TriggerContext(declared.key, working_dir=Path(project), state=state))
    trigger.configure(declared.config.config)
    return trigger


async def next_fire(
    declared: Declared, after: datetime, *, project: str, plugins: Plugins, store: DurableStore
) -> datetime | None:
    """Return when a trigger fires next; None where that is not known, or never."""
    try:
        source = await scheduled_source(declared, project=project, plugins=plugins, store=store)
        coming = next(iter(source.upcoming(after)), None) if source is not None else None
    except Exception:  # what is wrong with it is said where it is checked, and started
        return None
    return coming.at if coming is not None else None
