"""Match event names with subscriptions: exactly, by prefix (`work:*`) or by `*`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amplifier_core.frozen import frozen
from amplifier_core.ids import name_in_session_id

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from amplifier_core.events import SessionEvent

ROUTER = "router:"
"""The beginning of the names of the router's own events."""
OVERFLOW = f"{ROUTER}overflow"
"""The router's notice of lost events, for subscribers that name it or a prefix of it."""

Item = TypeVar("Item", bound="Any")


def matches(names: Sequence[str], name: str) -> bool:
    """Return whether `name` is one of `names`: exactly, by `*`, or by a prefix such as `work:*`."""
    return any(pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in names)


def comes_from(sources: Container[str], session_id: str | None) -> bool:
    """Return whether `sources` hold the session's id, or the name that its id was made from.

    A background session `review` handles each event in a session of its own, such as `review-3f9a0c1b77de`; the name
    `review` stands for all of them.
    """
    return session_id is not None and (session_id in sources or name_in_session_id(session_id) in sources)


@frozen
class Filter:
    """Names of events, and their sources: ids or names of sessions (None: any session)."""

    names: frozenset[str]
    sources: frozenset[str] | None

    @classmethod
    def of(cls, names: Sequence[str], sources: Sequence[str] | None) -> Filter:
        """Return the filter. Raises `ValueError` for a name without a possible match."""
        if isinstance(names, str) or not names:
            raise ValueError(f"event names are a list of at least one, not {names!r}")
        for name in names:
            if not name or "*" in name[:-1]:
                raise ValueError(f"{name!r}: an event name has no * but as its last character, as in 'work:*'")
        return cls(frozenset(names), None if sources is None else frozenset(sources))

    @property
    def wants_notices(self) -> bool:
        """Whether it asks for the router's own notices."""
        return matches([*(self.names - {"*"})], OVERFLOW)

    def wants(self, event: SessionEvent) -> bool:
        """Return whether the event has one of the names and comes from one of the sources."""
        if self.sources is not None and not comes_from(self.sources, event.source_session_id):
            return False
        return event.name in self.names or matches([*self.names], event.name)


class NameIndex(Generic[Item]):
    """Finds the items filed under a name, its prefixes and `*`; the time does not grow with the number of items."""

    def __init__(self) -> None:
        self._filed: dict[str, dict[Item, None]] = {}

    def add(self, names: frozenset[str], item: Item) -> None:
        """File `item` under each of `names`."""
        for name in names:
            self._filed.setdefault(name, {})[item] = None

    def discard(self, names: frozenset[str], item: Item) -> None:
        """Take `item` away, and forget a name without items."""
        for name in names:
            filed = self._filed.get(name, {})
            filed.pop(item, None)
            if not filed:
                self._filed.pop(name, None)

    def find(self, name: str) -> Iterator[Item]:
        """Yield each item filed under `name`, a prefix of it, or `*`, once."""
        patterns = (name, *(f"{name[:end]}*" for end in range(len(name) + 1)))
        found = (self._filed[pattern] for pattern in patterns if pattern in self._filed)
        return iter({item: None for filed in found for item in filed})

    def __len__(self) -> int:
        return len(self._filed)
