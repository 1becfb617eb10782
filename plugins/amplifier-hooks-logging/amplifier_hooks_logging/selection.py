"""Which events are logged, and which there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core import ModuleCoordinator

ANNOUNCEMENTS = "observability.events"
"""The channel, and the capability, with the names of events that modules emit besides the well-known ones."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The events that `included` names and `excluded` does not; `tool:*` stands for all that begin so."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def takes(self, event: str) -> bool:
        """Return whether `event` is logged."""
        return _matches(event, self.included) and not _matches(event, self.excluded)

    def named(self) -> list[str]:
        """Return the events that are spelled out: they are logged whether anybody announces them or not."""
        return [name for name in self.included if not name.endswith("*") and self.takes(name)]


def _matches(event: str, patterns: tuple[str, ...]) -> bool:
    return any(event.startswith(pattern[:-1]) if pattern.endswith("*") else event == pattern for pattern in patterns)


async def announced(coordinator: ModuleCoordinator) -> list[str]:
    """Return the names that the modules of a session announce, each once."""
    contributions = await coordinator.collect_contributions(ANNOUNCEMENTS)
    offered = [coordinator.get_capability(ANNOUNCEMENTS), *contributions]
    return list(dict.fromkeys(name for each in offered for name in _names(each)))


def _names(offered: Any) -> Iterable[str]:
    if isinstance(offered, str):
        return [offered] if offered else []
    if isinstance(offered, (list, tuple, set, frozenset)):
        return [name for name in offered if isinstance(name, str) and name]
    return []
