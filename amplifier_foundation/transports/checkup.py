"""Look whether the transports of the settings reach their brokers; `amplifier doctor` shows it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import UnknownName

from ..bundle.credentials import expand_references
from . import Route
from .carrying import describe_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from amplifier_core.plugins import Plugins

TIME_LIMIT = 10.0
"""Seconds for one broker to answer."""


def check_routes(entries: Iterable[Mapping[str, Any]], plugins: Plugins) -> Iterator[tuple[str, str, str]]:
    """Yield (state, fact, remedy) for each entry of the setting `transports`; nothing is published and received."""
    for route in map(Route.of, entries):
        ways = [("publishes", route.publish), ("receives", route.subscribe)]
        does = " and ".join(f"{verb} {', '.join(names)}" for verb, names in ways if names)
        try:
            asyncio.run(_connect(route, plugins))
        except UnknownName as error:
            yield "weak", str(error), f"pip install amplifier-{route.name}"
        except BaseException as raised:  # it is the code of others
            told = describe_failure(own_failure(raised))
            fact = f"{route.name} does not reach its broker as site '{route.site}': {told}"
            yield "weak", fact, "mend the setting transports, or the broker; events wait in the log meanwhile"
        else:
            yield "ok", f"{route.name} reaches its broker as site '{route.site}', which {does}", ""


async def _connect(route: Route, plugins: Plugins) -> None:
    transport = plugins.registry_of("transport").get(route.name)(await expand_references(dict(route.config)))
    try:
        async with asyncio.timeout(TIME_LIMIT):
            await transport.open(route.site, route.subscribe)
    finally:
        with suppress(Exception):
            async with asyncio.timeout(TIME_LIMIT):
                await transport.close()
