"""Find when the timers of a bundle will fire; nothing runs."""

from __future__ import annotations

from datetime import UTC
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from .timing import declared_in, list_fires, scheduled_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import Upcoming

    from ..bundle.model import Bundle
    from .timing import Declared

COUNTED = 10_000
"""Most further fires of one trigger to count: a timer of a millisecond has millions."""


@frozen
class Plan:
    """The fires of one trigger: the first ones, and the number of further ones."""

    declared: Declared
    fires: list[Upcoming]
    more: int
    counted: bool
    """Whether `more` counts all further fires."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of each fire; the first one after a clock change has a note."""
        before = ""
        for fire in self.fires:
            offset = f"{fire.at:%z}"
            changed = f"clock changed from {before} to {offset}" if before not in ("", offset) else ""
            yield {
                "at": fire.at.astimezone(UTC),
                "local": fire.at.isoformat(),
                "zone": getattr(fire.at.tzinfo, "key", None) or str(fire.at.tzinfo),
                "background_session": self.declared.background_session,
                "trigger": self.declared.name,
                "note": fire.note or changed,
            }
            before = offset


async def plan_timers(
    bundle: Bundle, plugins: Plugins, store: DurableStore, start: datetime, end: datetime, limit: int
) -> list[Plan]:
    """Return the plan of each trigger of `bundle` with known times: at most `limit` fires from `start` up to `end`.

    Raises `UnknownName`, `TriggerConfigError`.
    """
    from ..paths import project_of

    project = project_of(bundle.base_path)
    plans = []
    for declared in (each for session in bundle.background_sessions for each in declared_in(bundle, session)):
        source = await scheduled_source(declared, project=project, plugins=plugins, store=store)
        if source is not None:
            within = takewhile(lambda each: each.at < end, list_fires(declared, source, start))
            fires = list(islice(within, limit))
            more = sum(1 for _ in islice(within, COUNTED))
            plans.append(Plan(declared, fires, more, more < COUNTED))
    return plans
