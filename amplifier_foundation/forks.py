"""Fork a stored session: one new row that shares the source's history up to a point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.continuations import without_continuations
from amplifier_core.errors import SessionConflict, SessionError
from amplifier_core.ids import new_session_id
from amplifier_core.moments import ForkRequest, ForkResult
from amplifier_core.transcript import settled_length

from .history import end_of_turn, interrupted_results, open_calls, turn_starts
from .presence import KEY as PROCESS
from .spent import DURATION, USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

Orphans = Literal["complete", "remove", "error"]
"""What a fork does with tool calls that have no result before its point."""

TAIL = 32
"""Messages at the end of a history that are looked at first."""


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """Where a history is cut: it has `turns` turns there."""

    at: int
    turns: int
    left_out: int = 0
    """Messages before the point that was asked for which are not shared: a tool call in flight, and its results."""
    added: tuple[Message, ...] = ()
    """What the fork says itself first: results of calls that were in flight."""


async def fork_stored(
    store: SessionStore,
    source: SessionRecord,
    *,
    turn: int | None = None,
    message: int | None = None,
    orphans: Orphans = "remove",
    name: str = "",
    session_id: str | None = None,
    plugins: Plugins | None = None,
) -> SessionRecord:
    """Store a fork of `source` at the end of `turn`, after `message` (1-based), or now, and return its record.

    It has the source's bundle, config and working folder, so that it resumes as the source would. Tool calls in flight
    at that point are left out (`remove`), recorded as interrupted (`complete`) or refused (`error`). Raises
    `SessionError` for a point there is not, `SessionConflict` for refused calls, `ForkRefused` when a plugin refuses.
    """
    place = await fork_place(store, source, turn=turn, message=message, orphans=orphans)
    return await fork_there(store, source, place, name=name, session_id=session_id, plugins=plugins)


async def fork_place(
    store: SessionStore,
    source: SessionRecord,
    *,
    turn: int | None = None,
    message: int | None = None,
    orphans: Orphans = "remove",
) -> ForkPlace:
    """Return where a fork of `source` would begin; reads no more of the history than it needs. Stores nothing."""
    if turn is None and message is None:
        messages, before = await _end_of_history(store, source)
        turns = source.turn_count if before else len(turn_starts(messages))
        return _place(source, messages, before, turns, orphans)
    messages = await store.read(source.session_id, 0, message)
    at = _end_of_turn(source, messages, turn) if turn is not None else _message(source, messages, message or 0)
    return _place(source, messages[:at], 0, len(turn_starts(messages[:at])), orphans)


async def fork_there(
    store: SessionStore,
    source: SessionRecord,
    place: ForkPlace,
    *,
    name: str = "",
    session_id: str | None = None,
    plugins: Plugins | None = None,
) -> SessionRecord:
    """Store a fork of `source` at a place that `fork_place` found, and return its record. Raises `ForkRefused`."""
    fork_id = session_id or new_session_id(name or source.name or "fork")
    if plugins is not None:
        await plugins.before_fork(ForkRequest(source.session_id, fork_id, place.at))
    record = await store.create(_record(source, place, fork_id, name))
    if place.added:
        await store.append(fork_id, place.added, at=place.at)
        record = await store.get(fork_id)
    if plugins is not None:
        await plugins.after_fork(ForkResult(source.session_id, fork_id, place.at))
    return record


def _record(source: SessionRecord, place: ForkPlace, fork_id: str, name: str) -> SessionRecord:
    now = datetime.now(UTC)
    kept = {key: value for key, value in source.metadata.items() if key not in (PROCESS, USAGE, DURATION)}
    metadata: Mapping[str, Any] = without_continuations(kept)
    return replace(
        source,
        session_id=fork_id,
        parent_id=source.session_id,
        fork_of=source.session_id,
        fork_at=place.at,
        name=name or source.name,
        status="idle",
        event_id=None,
        created=now,
        updated=now,
        message_count=place.at,
        turn_count=place.turns,
        error=None,
        metadata=metadata,
    )


async def _end_of_history(store: SessionStore, source: SessionRecord) -> tuple[list[Message], int]:
    """Return the end of the history, as much as tells what is settled, and how many messages lie before it."""
    length, span = source.message_count, TAIL
    while span < length:
        tail = await store.read(source.session_id, length - span, length)
        if any(message.get("role") == "assistant" for message in tail):
            return tail, length - span
        span *= 4
    return await store.read(source.session_id, 0, length), 0


def _end_of_turn(source: SessionRecord, messages: Sequence[Message], turn: int) -> int:
    try:
        return end_of_turn(messages, turn)
    except ValueError as error:
        raise SessionError(source.session_id, f"session '{source.session_id}' cannot be forked: {error}") from error


def _message(source: SessionRecord, messages: Sequence[Message], number: int) -> int:
    if 1 <= number <= len(messages):
        return number
    count = source.message_count
    valid = f"Message m{number} out of range. Valid range: m1-m{count}" if count else "it has no messages yet"
    raise SessionError(source.session_id, f"session '{source.session_id}' cannot be forked: {valid}")


def _place(source: SessionRecord, messages: Sequence[Message], before: int, turns: int, orphans: Orphans) -> ForkPlace:
    settled = settled_length(messages)
    in_flight = messages[settled:]
    if not in_flight:
        return ForkPlace(before + settled, turns)
    if orphans == "complete":
        return ForkPlace(before + len(messages), turns, added=tuple(interrupted_results(in_flight)))
    if orphans == "error":
        raise _orphaned(source, in_flight, before + settled)
    return ForkPlace(before + settled, turns, left_out=len(in_flight))


def _orphaned(source: SessionRecord, in_flight: Sequence[Message], settled: int) -> SessionConflict:
    names = ", ".join(str(call.get("tool") or call["id"]) for call in open_calls(in_flight))
    return SessionConflict(
        source.session_id,
        f"session '{source.session_id}' has tool calls without a result at m{settled + 1} ({names}). "
        f"Fork it before them with --orphans remove, or with them as interrupted: --orphans complete",
    )
