"""Which events a subscription asks for, and who asked for an event: by name, by prefix (`work:*`) or `*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core.events import SessionEvent

OVERFLOW = "router:overflow"
"""What the router tells of a subscriber that lost events, to those who ask for it by name or by a prefix."""

Item = TypeVar("Item", bound="Any")


def matches(names: Sequence[str], name: str) -> bool:
    """Return whether `name` is one of `names`: exactly, by `*`, or by a prefix such as `work:*`."""
    return any(pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in names)


@dataclass(frozen=True, slots=True)
class Filter:
    """Names, and the sessions that events may come from (None: any)."""

    names: frozenset[str]
    sources: frozenset[str] | None

    @classmethod
    def of(cls, names: Sequence[str], sources: Sequence[str] | None) -> Filter:
        """Return the filter; raises `ValueError` for names that nothing could match."""
        if isinstance(names, str) or not names:
            raise ValueError(f"event names are a list of at least one, not {names!r}")
        for name in names:
            if not name or "*" in name[:-1]:
                raise ValueError(f"{name!r}: an event name has no * but as its last character, as in 'work:*'")
        return cls(frozenset(names), None if sources is None else frozenset(sources))

    @property
    def wants_notices(self) -> bool:
        """Whether it asks for what the router itself tells."""
        return matches([*(self.names - {"*"})], OVERFLOW)

    def wants(self, event: SessionEvent) -> bool:
        """Return whether the event is one of those asked for."""
        if self.sources is not None and event.source_session_id not in self.sources:
            return False
        return event.name in self.names or matches([*self.names], event.name)


class NameIndex(Generic[Item]):
    """Finds what is filed under a name, its prefixes and `*`, whatever else is filed."""

    def __init__(self) -> None:
        self._filed: dict[str, dict[Item, None]] = {}

    def add(self, names: frozenset[str], item: Item) -> None:
        """File `item` under each of `names`."""
        for name in names:
            self._filed.setdefault(name, {})[item] = None

    def discard(self, names: frozenset[str], item: Item) -> None:
        """Take `item` away; a name that nothing is left under is forgotten."""
        for name in names:
            filed = self._filed.get(name, {})
            filed.pop(item, None)
            if not filed:
                self._filed.pop(name, None)

    def find(self, name: str) -> Iterator[Item]:
        """Yield each item that is filed under `name`, a prefix of it, or `*`, once."""
        patterns = (name, *(f"{name[:end]}*" for end in range(len(name) + 1)))
        found = (self._filed[pattern] for pattern in patterns if pattern in self._filed)
        return iter({item: None for filed in found for item in filed})

    def __len__(self) -> int:
        return len(self._filed)
