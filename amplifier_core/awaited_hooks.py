"""Let the awaited hooks of plugins take their time, and name the plugin of one that fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .cancellation import awaited_failure
from .errors import AmplifierError, PluginError
from .raised import describe_raised
from .time_limits import finish

if TYPE_CHECKING:
    from .eager import Waiting

logger = logging.getLogger(__name__)

BEFORE_TIME_LIMIT = 300.0
"""The most seconds for one plugin's `before_` hook: it may ask a service."""
AFTER_TIME_LIMIT = 60.0
"""The most seconds for one plugin's `after_` hook: what it observes is over, and its caller waits."""


async def finish_hook(waiting: Waiting[None], plugin: str, hook: str, *, observing: bool) -> None:
    """Await a hook that waits. Raises `TimeoutError` after its time limit, and what the hook raises."""
    seconds = AFTER_TIME_LIMIT if observing else BEFORE_TIME_LIMIT
    await finish(waiting, seconds, f"its {hook}", f"plugin '{plugin}'")


async def handle_failure(raised: BaseException, before: int, plugin: str, hook: str, *, observing: bool) -> None:
    """Log what the hook of an observer raised; raise what any other one did, with the plugin's name.

    Raises an `AmplifierError` of the hook as it is, and a `PluginError` in place of any other failure; what is not its
    own is raised in any case, see `awaited_failure`.
    """
    error = await awaited_failure(raised, before)
    failure = " ".join(f"plugin '{plugin}' failed in {hook}: {describe_raised(error)}".split())
    if observing:
        logger.warning("%s", failure)
    elif isinstance(raised, AmplifierError):
        raised.add_note(f"in plugin '{plugin}' ({hook})")
        raise raised
    else:
        raise PluginError(failure) from error
