"""Configure the triggers of a bundle without waking a session, and ask for their next fires and addresses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amplifier_core.errors import TriggerError
from amplifier_core.raised import describe_raised
from amplifier_core.triggers import ScheduledSource, TriggerContext, Upcoming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import EventSource, TriggerSource

    from ..bundle.background_config import BackgroundSessionConfig, TriggerConfig
    from ..bundle.model import Bundle

logger = logging.getLogger(__name__)


class Declared(NamedTuple):
    """One trigger of a background session, with its key in the store."""

    background_session: str
    key: str
    config: TriggerConfig

    @property
    def name(self) -> str:
        """The name in the bundle, else the name of the package."""
        return self.config.name or self.config.module

    async def source(
        self, project: str, plugins: Plugins, store: DurableStore, events: EventSource | None = None
    ) -> TriggerSource:
        """Return the trigger, configured as for a start now; it saves nothing.

        Raises `UnknownName`, `TriggerConfigError`, `TriggerError`.
        """
        from ..background.trigger_making import make_trigger

        state = await store.trigger_state(project, self.key)
        context = TriggerContext(self.key, working_dir=Path(project), events=events, state=state)
        return await make_trigger(self.config, context, plugins)


def declared_in(bundle: Bundle, session: BackgroundSessionConfig) -> Iterator[Declared]:
    """Yield the triggers of a background session, in written order."""
    from ..background.keys import queue_key, triggers_by_key

    for key, config in triggers_by_key(queue_key(bundle.name, session.name), session.triggers).items():
        yield Declared(session.name, key, config)


async def scheduled_source(
    declared: Declared, *, project: str, plugins: Plugins, store: DurableStore
) -> ScheduledSource | None:
    """Return the trigger, configured as for a start now; None for a trigger without known times.

    Raises `UnknownName`, `TriggerConfigError`, `TriggerError`.
    """
    from ..bundle.trigger_check import make_registered

    module = declared.config.module
    if module in plugins.triggers and not isinstance(make_registered(module, plugins), ScheduledSource):
        return None  # its configuration is not read: it may be invalid on this machine
    trigger = await declared.source(project, plugins, store)
    return trigger if isinstance(trigger, ScheduledSource) else None


def list_fires(declared: Declared, source: ScheduledSource, after: datetime) -> Iterator[Upcoming]:
    """Yield the fires of a trigger after a time. A mistake of its `upcoming` ends them, and is logged."""
    try:
        fires: Iterator[object] = source.upcoming(after)
        for fire in fires:
            if not isinstance(fire, Upcoming):
                problem = f"its upcoming yields {type(fire).__name__}, not Upcoming"
                raise TriggerError(declared.config.module, problem)
            if getattr(fire.at, "tzinfo", None) is None:
                problem = "its upcoming yields an Upcoming whose at is no datetime with a time zone"
                raise TriggerError(declared.config.module, problem)
            yield fire
    except Exception as error:
        where = f"'{declared.name}' of background session '{declared.background_session}'"
        logger.warning("the fires of trigger %s are not known: %s", where, describe_raised(error))


async def next_fire(
    declared: Declared, after: datetime, *, project: str, plugins: Plugins, store: DurableStore
) -> datetime | None:
    """Return the next fire of a trigger; None when it is unknown, or never comes."""
    try:
        source = await scheduled_source(declared, project=project, plugins=plugins, store=store)
        coming = next(list_fires(declared, source, after), None) if source is not None else None
    except Exception:  # `validate` and `up` report its error
        return None
    return coming.at if coming is not None else None


async def find_url(declared: Declared, *, project: str, plugins: Plugins, store: DurableStore) -> str:
    """Return the URL that wakes the background session of a trigger; '' for none, or one known only once it runs."""
    from ..background.trigger_making import url_of

    module = declared.config.module
    try:
        if not hasattr(plugins.triggers.get(module)(), "url"):
            return ""  # its configuration is not read: it may be invalid on this machine
        return url_of(await declared.source(project, plugins, store))
    except Exception:  # `validate` and `up` report its error
        return ""
