"""Carry events between sites that have a store each: `amplifier_foundation.hookspecs.Transport` is the contract.

The log of a store is its outbox, with a cursor for each transport in the same store. The store of the other site
remembers what came from whom: each event is in its log once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SET_ASIDE = "transport:set_aside"
"""An event in the log: a message could not be sent or read; `reason` says why, and `message` which."""
LOST = "transport:lost"
"""An event in the log: retention has removed `count` events before they were looked at for publishing."""
OWN = "transport:"
"""Events about transports stay at home."""


@frozen
class Route:
    """One entry of the setting `transports`."""

    name: str
    site: str
    """The name of this site among the others."""
    config: Mapping[str, Any]
    publish: Sequence[str] = ()
    """Names of the events that go to other sites: exact ones, prefixes (`work:*`) or `*`."""
    subscribe: Sequence[str] = ()
    """Names of the events that are received."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Route:
        """Return the route of a checked entry of the settings."""
        lists = {key: tuple(entry.get(key) or ()) for key in ("publish", "subscribe")}
        return cls(str(entry["name"]), str(entry["site"]), dict(entry.get("config") or {}), **lists)
