"""Select the events to log, and find those of other modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_core import ModuleCoordinator

ANNOUNCEMENTS = "observability.events"
"""The channel and the capability for names of events besides the well-known ones."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The events in `included` and not in `excluded`; `tool:*` is a prefix."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def takes(self, event: str) -> bool:
        """Return whether `event` is logged."""
        return _matches(event, self.included) and not _matches(event, self.excluded)

    def exact_names(self) -> list[str]:
        """Return the names without a `*`: they are logged also if no module announces them."""
        return [name for name in self.included if not name.endswith("*") and self.takes(name)]


def _matches(event: str, patterns: tuple[str, ...]) -> bool:
    return any(event.startswith(pattern[:-1]) if pattern.endswith("*") else event == pattern for pattern in patterns)


async def find_announced(coordinator: ModuleCoordinator) -> list[str]:
    """Return the announced names of a session's modules, each once."""
    contributions = await coordinator.collect_contributions(ANNOUNCEMENTS)
    names: dict[str, None] = {}
    for offered in (coordinator.get_capability(ANNOUNCEMENTS), *contributions):
        several = offered if isinstance(offered, (list, tuple, set, frozenset)) else [offered]
        names |= dict.fromkeys(name for name in several if isinstance(name, str) and name)
    return list(names)
