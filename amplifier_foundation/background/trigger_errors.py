"""Write the failures of triggers to the log of events."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

from .log_events import TRIGGER_ERROR

if TYPE_CHECKING:
    from datetime import datetime

    from .state import BackgroundSessionState, Engine


def place_of(background: BackgroundSessionState, trigger: str) -> str:
    """Return where its bundle declares a trigger, as `FILE:LINE:COLUMN: `, '' for one declared by a program."""
    bundle, number = background.declared_in, [*background.declared].index(trigger)
    place = bundle.places.get(("background_sessions", background.config.name, str(number))) if bundle else None
    return f"{place}: " if place is not None else ""


async def emit_trigger_error(
    engine: Engine, background: BackgroundSessionState, error: dict[str, str], next_try: datetime | None
) -> None:
    """Emit a failure of a trigger; `error` has `trigger`, `module`, `error` and `error_type`."""
    data = {
        "session_id": background.session_id,
        "session_name": background.config.name,
        "queue": background.queue,
        "project": background.project,
        **error,
        "next_try": next_try.isoformat() if next_try else None,
    }
    with suppress(StoreUnavailable):  # the problem is in the status all the same
        await engine.router.emit(TRIGGER_ERROR, data, background.session_id, project=background.project)
