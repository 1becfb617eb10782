"""A bundle's triggers without a session to wake: configured, and asked when they will fire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.triggers import ScheduledSource, TriggerContext

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import EventSource, TriggerSource

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

    async def source(
        self, project: str, plugins: Plugins, store: DurableStore, events: EventSource | None = None
    ) -> TriggerSource:
        """Return the trigger, configured as if it were started now; what it would save is forgotten.

        Raises `UnknownName`, `TriggerConfigError`.
        """
        from ...background.making import make_trigger

        state = await store.trigger_state(project, self.key)
        context = TriggerContext(self.key, working_dir=Path(project), events=events, state=state)
        return await make_trigger(self.config, context, plugins)


def declared_in(bundle: Bundle, session: BackgroundSessionConfig) -> Iterator[Declared]:
    """Yield the triggers of a background session, in the order in which they are written."""
    from ...background.lane import lane_key, triggers_by_key

    for key, config in triggers_by_key(lane_key(bundle.name, session.name), session.triggers).items():
        yield Declared(session.name, key, config)


def session_named(bundle: Bundle, name: str) -> BackgroundSessionConfig:
    """Return the background session of that name. Raises `NoSuchBackgroundSession`."""
    from ...control import NoSuchBackgroundSession

    for session in bundle.background_sessions:
        if session.name == name:
            return session
    raise NoSuchBackgroundSession(name, [each.name for each in bundle.background_sessions])


async def scheduled_source(
    declared: Declared, *, project: str, plugins: Plugins, store: DurableStore
) -> ScheduledSource | None:
    """Return the trigger, configured as if it were started now; None for one that does not know its times.

    Raises `UnknownName`, `TriggerConfigError`.
    """
    module = declared.config.module
    if module in plugins.triggers and not isinstance(plugins.triggers.get(module)(), ScheduledSource):
        return None  # and its configuration, which may not do here, is not looked at
    trigger = await declared.source(project, plugins, store)
    return trigger if isinstance(trigger, ScheduledSource) else None


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
