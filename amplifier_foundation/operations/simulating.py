"""Find when the timers of a bundle will fire; nothing runs."""

from __future__ import annotations

from datetime import UTC
from heapq import heapify, heappop, heappush
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

from .timing import declared_in, list_fires, scheduled_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import Upcoming

    from ..bundle.model import Bundle
    from .timing import Declared

COUNTED = 10_000
"""Most further fires of one trigger to count: a timer of a millisecond has millions."""
COUNTED_IN_ALL = 100_000
"""Further fires after which no trigger's are counted."""


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
    bundle: Bundle,
    plugins: Plugins,
    store: DurableStore,
    start: datetime,
    end: datetime,
    limit: int,
    total: int | None = None,
) -> list[Plan]:
    """Return the plan of each trigger of `bundle` with known times: at most `limit` fires from `start` up to `end`.

    In all they are the first `total` fires (None: without a bound). Raises `UnknownName`, `TriggerConfigError`.
    """
    from ..paths import project_of

    project = project_of(bundle.base_path)
    planned: list[tuple[Declared, Iterator[Upcoming]]] = []
    for declared in (each for session in bundle.background_sessions for each in declared_in(bundle, session)):
        source = await scheduled_source(declared, project=project, plugins=plugins, store=store)
        if source is not None:
            planned.append((declared, takewhile(lambda each: each.at < end, list_fires(declared, source, start))))
    fires, next_ones = take_first([left for _, left in planned], limit, total)
    plans, counted = [], 0
    for place, (declared, left) in enumerate(planned):
        most = max(1, min(COUNTED, COUNTED_IN_ALL - counted))
        more = sum(1 for _ in islice(chain(next_ones.get(place, ()), left), most))
        counted += more
        plans.append(Plan(declared, fires[place], more, more < most))
    return plans


def take_first(
    sources: Sequence[Iterator[Upcoming]], limit: int, total: int | None
) -> tuple[list[list[Upcoming]], dict[int, list[Upcoming]]]:
    """Take the first `total` fires of all sources, at most `limit` of each.

    Return those of each source, and the next fire of a source, by its place, where one was read and not taken.
    """
    taken: list[list[Upcoming]] = [[] for _ in sources]
    waiting = [(fire.at, place, fire) for place, source in enumerate(sources) for fire in islice(source, 1)]
    heapify(waiting)
    count = 0
    while waiting and count != total:
        _, place, fire = heappop(waiting)
        taken[place].append(fire)
        count += 1
        if len(taken[place]) < limit:
            for following in islice(sources[place], 1):
                heappush(waiting, (following.at, place, following))
    return taken, {place: [fire] for _, place, fire in waiting}
