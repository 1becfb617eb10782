"""See the deliveries, forks and spawns of this process; it does nothing unless a bundle mounts the hook."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from types import ModuleType

    from amplifier_core.hook_data import ForkResult, SpawnOutcome
    from amplifier_core.storage import Delivery


def _find(module: str) -> ModuleType | None:
    """Return a module of this package if a mounted hook has imported it."""
    return sys.modules.get(f"{__package__}.{module}")


@hookimpl
async def amplifier_after_trigger(delivery: Delivery) -> None:
    """Make the span of an ended delivery of a bundle that mounts the hook."""
    queues = _find("queues")
    for each in list(queues.watched) if queues is not None else ():
        if each.queues.holds(delivery):
            await each.end_delivery(delivery)


@hookimpl
async def amplifier_after_fork(result: ForkResult) -> None:
    """Remember a fork made in this process: the hook of its session links it with the source."""
    placing = _find("placing")
    if placing is not None:
        placing.remember_fork(result.session_id, result.source_id, result.at)


@hookimpl
async def amplifier_after_spawn(result: SpawnOutcome) -> None:
    """Measure the end of a session below a bundle that mounts the hook."""
    queues = _find("queues")
    for each in list(queues.watched) if queues is not None else ():
        if result.parent_id == each.parent_id:
            each.end_spawn(result)
