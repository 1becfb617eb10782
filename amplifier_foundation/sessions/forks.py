"""Fork a stored session: one new record shares the source's history up to a point, and copies nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from amplifier_core.continuations import without_continuations
from amplifier_core.errors import SessionConflict, SessionError
from amplifier_core.forking import ask_to_fork
from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id
from amplifier_core.transcript import settled_length

from ..documents.problems import require_choice
from .accounts import ACCOUNTS, fork_metadata
from .costs import DURATION, USAGE
from .held import HELD
from .history import Orphans, end_of_turn, interrupted_results, open_calls, turn_starts
from .ledger import LEDGER
from .once import ONCE
from .presence import KEY as PROCESS
from .presence import LOCK, WAITING, status_of
from .records import FORKED, INHERITED_TURNS
from .runs import is_run
from .uncounted import COUNTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

SHORT = 32
"""Messages of a history whose turns are counted while the session runs: its record lacks the running turn."""


class PointNotFound(SessionError, LookupError):
    """The history of a session has no such turn or message."""


@frozen
class ForkPlace:
    """The point of a fork: after `at` messages and `turns` turns."""

    at: int
    turns: int
    left_out: int = 0
    """Messages before the requested point that stay out: a tool call in flight with its results, an open prompt."""
    added: tuple[Message, ...] = ()
    """The fork's own first messages: results for the calls that were in flight."""


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
    """Store a fork of `source` at the end of `turn`, after `message` (1-based), or now; return its record.

    The fork has the source's bundle, config and working folder and resumes as the source would. Tool calls in flight at
    that point are left out (`remove`), recorded as interrupted (`complete`) or refused (`error`). The prompt of a turn
    that runs, or waits for a person, is left out until something settled follows it: the source answers it, and its
    fork would do that a second time. Raises `PointNotFound` for a point outside the history, `SessionConflict` for
    refused calls, `ForkRefused`, `ValueError` for unknown `orphans`, and `TypeError` for an id in place of a record and
    for a point that is no number.
    """
    if isinstance(source, str):
        raise TypeError(f"source: give the record of a session, not its id: await store.get({source!r})")
    for key, point in (("turn", turn), ("message", message)):
        if point is not None and (isinstance(point, bool) or not isinstance(point, int)):
            raise TypeError(f"{key}: must be a whole number, not {point!r}")
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
    """Return the point of a fork of `source`, as `fork_stored` does. Reads only as much of the history as it needs."""
    require_choice("orphans", orphans, get_args(Orphans))
    answers = status_of(source) in ("running", WAITING) and not is_run(source)
    if turn is None and message is None:
        messages, before = await _read_end(store, source, answers=answers)
        turns = source.turn_count if before else len(turn_starts(messages))
        place = _settle(source, messages, before, turns, orphans)
        return _leave_prompt(source, place, messages, before) if answers else place
    messages = await store.read(source.session_id, 0, message)
    try:
        at = end_of_turn(messages, turn) if turn is not None else _check_message(source, messages, message or 0)
    except ValueError as error:
        raise PointNotFound(source.session_id, f"session '{source.session_id}' cannot be forked: {error}") from error
    place = _settle(source, messages[:at], 0, len(turn_starts(messages[:at])), orphans)
    if not answers:
        return place
    return _leave_prompt(source, place, await _read_on(store, source, messages, place.at), 0)


async def fork_there(
    store: SessionStore,
    source: SessionRecord,
    place: ForkPlace,
    *,
    name: str = "",
    session_id: str | None = None,
    plugins: Plugins | None = None,
    project: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> SessionRecord:
    """Store a fork of `source` at a point from `fork_place`, and return its record. Raises `ForkRefused`.

    The fork works in `project` (default: where the source works). `metadata` is added to that of the source.
    """
    fork_id = session_id or new_session_id(name or source.name or "fork")
    async with ask_to_fork(plugins, source.session_id, fork_id, place.at):
        spending = await fork_metadata(store, source)
        added = {**spending, **(metadata or {})}
        record = await store.create(_fork_record(source, place, fork_id, name, added, project))
        if place.added:
            await store.append(fork_id, place.added, at=place.at)
            record = await store.get(fork_id)
    return record


def _fork_record(
    source: SessionRecord, place: ForkPlace, fork_id: str, name: str, added: Mapping[str, Any], project: str
) -> SessionRecord:
    now = datetime.now(UTC)
    of_source = (PROCESS, LOCK, USAGE, DURATION, ONCE, HELD, LEDGER, COUNTED, ACCOUNTS, INHERITED_TURNS)
    kept = {key: value for key, value in source.metadata.items() if key not in of_source}
    inherited = {INHERITED_TURNS: place.turns} if place.turns else {}
    metadata: Mapping[str, Any] = {**without_continuations(kept), **inherited, **added, FORKED: True}
    return replace(
        source,
        session_id=fork_id,
        parent_id=source.session_id,
        fork_of=source.session_id,
        fork_at=place.at,
        name=name or source.name,
        project=project or source.project,
        status="idle",
        event_id=None,
        created=now,
        updated=now,
        message_count=place.at,
        turn_count=place.turns,
        error=None,
        metadata=metadata,
    )


async def _read_end(store: SessionStore, source: SessionRecord, *, answers: bool) -> tuple[list[Message], int]:
    """Return the end of the history from before its last answer on, and the number of messages before that end.

    Everything before the last answer is settled: a turn goes on only when its calls have results. While the source
    answers a prompt, its last answer is the one before.
    """
    length, span = source.message_count, 1  # the last message is the answer, mostly
    if source.status == "running" and length <= SHORT:
        span = length
    while span < length:
        tail = await store.read(source.session_id, length - span, length)
        has_answer = any(message.get("role") == "assistant" for message in tail)
        if has_answer and (not answers or _answered_length(tail)):
            return tail, length - span
        span *= 8
    return await store.read(source.session_id, 0, length), 0


async def _read_on(store: SessionStore, source: SessionRecord, messages: list[Message], at: int) -> list[Message]:
    """Return `messages`, the beginning of the history, and of the rest as much as tells whether `at` is answered."""
    piece = 8
    while _answered_length(messages) < at:
        more = await store.read(source.session_id, len(messages), len(messages) + piece)
        if not more:
            break
        messages = [*messages, *more]
        piece *= 8
    return messages


def _answered_length(messages: Sequence[Message]) -> int:
    """Return the number of messages up to the last settled one that is no prompt."""
    end = settled_length(messages)
    while end and messages[end - 1].get("role") == "user":
        end -= 1
    return end


def _leave_prompt(source: SessionRecord, place: ForkPlace, messages: Sequence[Message], before: int) -> ForkPlace:
    """Return a place before the prompt that the source answers, unless the fork has a result of it."""
    end = _answered_length(messages)
    left_out = messages[end : place.at - before]
    if place.added or not left_out:
        return place
    is_counted = not before or source.status != "running"  # the record of a running session lacks its turn
    turns = place.turns - len(turn_starts(left_out)) if is_counted else place.turns
    return replace(place, at=before + end, turns=turns, left_out=place.left_out + len(left_out))


def _check_message(source: SessionRecord, messages: Sequence[Message], number: int) -> int:
    if 1 <= number <= len(messages):
        return number
    count = source.message_count
    raise ValueError(f"Message m{number} out of range. Valid range: m1-m{count}" if count else "it has no messages yet")


def _settle(source: SessionRecord, messages: Sequence[Message], before: int, turns: int, orphans: Orphans) -> ForkPlace:
    settled = settled_length(messages)
    in_flight = messages[settled:]
    if not in_flight:
        return ForkPlace(before + settled, turns)
    if orphans == "complete":
        return ForkPlace(before + len(messages), turns, added=tuple(interrupted_results(in_flight)))
    if orphans == "error":
        names = ", ".join(str(call.get("tool") or call["id"]) for call in open_calls(in_flight))
        raise SessionConflict(
            source.session_id,
            f"session '{source.session_id}' has tool calls without a result at m{before + settled + 1} ({names}). "
            f"Fork it before them with --orphans remove, or with them as interrupted: --orphans complete",
        )
    return ForkPlace(before + settled, turns, left_out=len(in_flight))
