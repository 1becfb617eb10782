"""Fork a stored session: one new row that shares the source's history up to a point."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionError
from amplifier_core.ids import new_session_id
from amplifier_core.moments import ForkRequest, ForkResult

from .history import fork_point, turn_starts

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore


async def fork_stored(
    store: SessionStore,
    source: SessionRecord,
    *,
    turn: int | None = None,
    name: str = "",
    session_id: str | None = None,
    plugins: Plugins | None = None,
) -> SessionRecord:
    """Store a fork of `source` at the end of `turn` (None: at its last settled message) and return its record.

    The fork has the source's bundle, config and working folder, so that it resumes as the source would. Raises
    `SessionError` for a turn there is not, `ForkRefused` when a plugin refuses.
    """
    messages = await store.read(source.session_id)
    try:
        at = fork_point(messages, turn)
    except ValueError as error:
        raise SessionError(source.session_id, f"session '{source.session_id}' cannot be forked: {error}") from error
    fork_id = session_id or new_session_id(name or source.name or "fork")
    if plugins is not None:
        await plugins.before_fork(ForkRequest(source.session_id, fork_id, at))
    now = datetime.now(UTC)
    record = await store.create(
        replace(
            source,
            session_id=fork_id,
            parent_id=source.session_id,
            fork_of=source.session_id,
            fork_at=at,
            name=name or source.name,
            status="idle",
            event_id=None,
            created=now,
            updated=now,
            message_count=at,
            turn_count=len(turn_starts(messages[:at])),
            error=None,
        )
    )
    if plugins is not None:
        await plugins.after_fork(ForkResult(source.session_id, fork_id, at))
    return record
