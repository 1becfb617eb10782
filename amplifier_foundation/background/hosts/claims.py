"""Keep the claim on a delivery while its session runs, or let the session go in time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from amplifier_core.errors import StoreUnavailable

if TYPE_CHECKING:
    from ..state import Running
    from .member import Member

logger = logging.getLogger(__name__)


async def keep_claim(member: Member, running: Running, claimed: float) -> NoReturn:
    """Renew a claim until cancelled; `claimed` is when it was asked for, in seconds of the monotonic clock.

    Raises `StaleEpoch` when another process has taken it over, and `StoreUnavailable` when most of the lease is over
    without a renewal: the work must end here before it begins elsewhere. `running` notes whether nobody tried to.
    """
    clock, delivery, running.hung = member.clock, running.delivery, True
    while True:
        until = claimed + member.claims_for
        await clock.sleep(min(member.lease / 3, until - clock.monotonic()))
        asked = clock.monotonic()
        running.hung = running.hung and asked >= until
        try:
            async with asyncio.timeout(max(0.0, until - asked)):
                await member.store.renew(delivery, lease=member.lease)
            claimed, running.hung = asked, True
        except (StoreUnavailable, TimeoutError) as error:
            if clock.monotonic() >= until:
                raise StoreUnavailable(
                    delivery.project,
                    f"the claim on delivery {delivery.delivery_id} was not renewed in time: its session ends here, "
                    f"and another host takes it over ({str(error) or 'no answer'})",
                ) from error
            logger.warning("the claim on %s was not renewed: %s", delivery.delivery_id, str(error) or "no answer")
