"""Fork a stored session: one new row that shares the source's history up to a point."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionError
from amplifier_core.ids import new_session_id
from amplifier_core.moments import ForkRequest, ForkResult

from .history import fork_point, settled_tail, turn_starts

if TYPE_CHECKING:
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore

TAIL = 32
"""Messages at the end of a history that are looked at first."""


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
    at, turns = await _now(store, source) if turn is None else await _end_of_turn(store, source, turn)
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
            turn_count=turns,
            error=None,
        )
    )
    if plugins is not None:
        await plugins.after_fork(ForkResult(source.session_id, fork_id, at))
    return record


async def _now(store: SessionStore, source: SessionRecord) -> tuple[int, int]:
    """Return (messages, turns) up to the last settled message, looking at no more of the history's end than needed."""
    length, span = source.message_count, TAIL
    while span < length:
        tail = await store.read(source.session_id, length - span, length)
        settled = settled_tail(tail)
        if settled is not None:
            return length - span + settled, source.turn_count
        span *= 4
    messages = await store.read(source.session_id, 0, length)
    at = fork_point(messages)
    return at, len(turn_starts(messages[:at]))


async def _end_of_turn(store: SessionStore, source: SessionRecord, turn: int) -> tuple[int, int]:
    messages = await store.read(source.session_id)
    try:
        return fork_point(messages, turn), turn
    except ValueError as error:
        raise SessionError(source.session_id, f"session '{source.session_id}' cannot be forked: {error}") from error
