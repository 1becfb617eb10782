"""Carry events to other sites beside background sessions: those of the first session already, and until the last ends.

Who has no transport imports nothing of them.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import SystemClock

from .tasks import keep_beside, run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

    from ..events import EventRouter
    from ..transports.carrying import Carrier
    from .hosts.member import Member


async def begin_to_carry(
    entries: Sequence[Mapping[str, Any]],
    store: DurableStore,
    router: EventRouter,
    plugins: Plugins,
    member: Member | None,
    report: Callable[[str, str], None],
) -> list[Carrier]:
    """Return a carrier for each entry of the setting `transports`: what is emitted from now on is for other sites.

    `report` gets the name of a component and its problem. Raises `UnknownName`.
    """
    carriers = []
    for entry in entries:
        from ..transports import Route
        from ..transports.carrying import Carrier

        route = Route.of(entry)
        factory = plugins.registry_of("transport").get(route.name)
        carriers.append(Carrier(route, factory, store, router, SystemClock(), report))
        await carriers[-1].begin(is_alone=member is None)
    return carriers


@asynccontextmanager
async def carrying(
    carriers: Sequence[Carrier], member: Member | None, report: Callable[[str, str], None]
) -> AsyncIterator[None]:
    """Carry events to other sites and back while the block runs, of several hosts on one."""
    async with AsyncExitStack() as stack:
        for carrier in carriers:
            if member is None:
                await stack.enter_async_context(keep_beside(carrier.run, carrier.component, report))
                continue
            from .hosts.leading import Leadership

            leadership = Leadership(member, carrier.component)
            await stack.enter_async_context(keep_beside(leadership.run, leadership.name, report))
            await stack.enter_async_context(run_beside(leadership.run_led(carrier.run_led), carrier.component))
        yield
