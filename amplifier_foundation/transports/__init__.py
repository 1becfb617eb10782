"""Carry events between sites that have a store each: `amplifier_foundation.hookspecs.Transport` is the contract.

The log of a store is its outbox, with a cursor for each transport in the same store. The store of the other site
remembers what came from whom: each event is in its log once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..events import EventRouter
    from .carrying import Carrier

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


async def begin_to_carry(
    entries: Sequence[Mapping[str, Any]],
    store: DurableStore,
    router: EventRouter,
    plugins: Plugins,
    report: Callable[[str, str], None],
    *,
    is_alone: bool,
) -> list[Carrier]:
    """Return a carrier for each entry of the setting: what is emitted from now on is for other sites.

    `report` gets the name of a component and its problem; without `is_alone`, other hosts have the same entries. Raises
    `UnknownName`.
    """
    carriers = []
    for entry in entries:
        from amplifier_core.clock import SystemClock

        from .carrying import Carrier

        route = Route.of(entry)
        factory = plugins.registry_of("transport").get(route.name)
        carriers.append(Carrier(route, factory, store, router, SystemClock(), report))
        await carriers[-1].begin(is_alone=is_alone)
    return carriers
