"""Find stored sessions, and fork, rename, delete and repair them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import AmplifierError, SessionConflict, SessionNotFound
from amplifier_core.permissions.hidden import is_printable

from .acting import record_act

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import Delivery, Finding, SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from ..sessions.forks import ForkPlace
    from ..sessions.history import Orphans
    from .acting import Actor

LAST = "last"
"""Stands for the id of the last changed session, run or approval of a project."""
SHORTEST = 4
"""Characters of an id that are enough to name a session."""
LONGEST_NAME = 128
_LONG = ("config", "metadata")


class InvalidPoint(AmplifierError, ValueError):
    """A text names no place in a session's history."""

    def __init__(self, text: str) -> None:
        super().__init__(f"'{text}': after '@' write the number of a turn, the id of a message (m12), or 'now'")


class InvalidName(AmplifierError, ValueError):
    """A text cannot be the name of a session."""


class Point(NamedTuple):
    """A place in a stored session's history; without turn and message: its end."""

    session: str
    turn: int | None = None
    message: int | None = None


class Forked(NamedTuple):
    """A fork that was stored, and the point of its source."""

    record: SessionRecord
    place: ForkPlace


def split_point(text: str) -> Point:
    """Return the point of `ID`, `ID@now`, `ID@TURN` or `ID@mMESSAGE`. Raises `InvalidPoint`."""
    session, separator, place = text.partition("@")
    if not separator or place == "now":
        return Point(session)
    number = place.removeprefix("m")
    if not (number.isascii() and number.isdigit()):
        raise InvalidPoint(text)
    return Point(session, message=int(number)) if place != number else Point(session, turn=int(number))


def check_name(name: str) -> str:
    """Return a session's name without surrounding space. Raises `InvalidName`."""
    from amplifier_core.utils.secrets import redact_text

    name = name.strip()
    if redact_text(name) != name:
        raise InvalidName("the name holds a secret, and names are stored and shown; choose another one")
    if not name or not is_printable(name) or len(name) > LONGEST_NAME:
        raise InvalidName(f"a name is one line of 1 to {LONGEST_NAME} printable characters")
    return name


async def read_sessions(
    store: SessionStore, projects: Collection[str] | None = None, limit: int | None = None
) -> list[SessionRecord]:
    """Return the sessions of these projects (None: of all), the last changed first."""
    if projects is None:
        return await store.sessions(limit=limit)
    found = [each for project in set(projects) for each in await store.sessions(project=project, limit=limit)]
    return sorted(found, key=lambda each: each.updated, reverse=True)[:limit]


async def read_deliveries(store: SessionStore, **wanted: Any) -> list[Delivery]:
    """Return the deliveries of a store; a store without an inbox has none."""
    from amplifier_core.storage import Inbox

    return await store.deliveries(**wanted, limit=100_000) if isinstance(store, Inbox) else []


async def find_session(store: SessionStore, prefix: str, projects: Collection[str] | None = None) -> SessionRecord:
    """Return the session with the id `prefix`, else the only one whose id begins with it (four characters or more).

    `last` is the last changed session of `projects` (None: of all) that has messages and is no run of a workflow.
    Raises `InvalidSessionId`, `SessionNotFound`, and `SessionConflict` when several ids begin so.
    """
    from amplifier_core.ids import validate_session_id

    from ..sessions.runs import is_run

    validate_session_id(prefix)
    if prefix == LAST:
        return await find_last(store, lambda record: record.message_count > 0 and not is_run(record), projects)
    found = await store.find(prefix)
    for record in found:
        if record.session_id == prefix:
            return record
    if not found or len(prefix) < SHORTEST:
        raise SessionNotFound(prefix)
    if len(found) > 1:
        with suppress(SessionNotFound):  # many ids may begin with a whole one: those of the tasks of a run
            return await store.get(prefix)
        ids = ", ".join(record.session_id for record in found[:5])
        raise SessionConflict(prefix, f"'{prefix}' begins the ids of several sessions: {ids}. Type more of the id")
    return found[0]


async def find_last(
    store: SessionStore, is_wanted: Callable[[SessionRecord], bool], projects: Collection[str] | None = None
) -> SessionRecord:
    """Return the last changed session of `projects` (None: of all) that is wanted. Raises `SessionNotFound`."""
    from ..sessions.store_views import read_in_steps

    for record in await read_sessions(store, projects, 20):
        if is_wanted(record):
            return record
    found: list[SessionRecord] = []
    for project in [None] if projects is None else set(projects):
        async for page in read_in_steps(store, project):
            if (wanted := next(filter(is_wanted, page), None)) is not None:
                found.append(wanted)
                break
    if not found:
        raise SessionNotFound(LAST)
    return max(found, key=lambda each: each.updated)


def session_facts(record: SessionRecord) -> dict[str, Any]:
    """Return a session as JSON shows it; `duration` (seconds) and `usage` are null when unknown."""
    from dataclasses import fields

    from ..sessions.costs import spent_of
    from ..sessions.presence import status_of
    from ..sessions.records import agent_of

    spent = spent_of(record)
    return {
        **{field.name: getattr(record, field.name) for field in fields(record) if field.name not in _LONG},
        "status": status_of(record),
        "agent": agent_of(record) or None,
        "duration": spent.duration,
        "usage": spent.usage.to_dict() if spent.usage else None,
    }


def with_ids(messages: Iterable[Message], start: int = 0) -> list[dict[str, Any]]:
    """Return messages with their ids, as `session fork ID@m12` takes them; the first has position `start`."""
    return [{**message, "id": f"m{number}"} for number, message in enumerate(messages, start + 1)]


async def fork_session(
    store: SessionStore,
    actor: Actor,
    source: SessionRecord,
    point: Point,
    *,
    name: str = "",
    orphans: Orphans = "remove",
    plugins: Plugins | None = None,
) -> Forked:
    """Store a fork of `source` at a point of it; the source stays as it is.

    Raises `SessionConflict` for the run of a workflow, `SessionError` for a point that is not there, `ForkRefused`.
    """
    from ..sessions.forks import fork_place, fork_there
    from ..sessions.runs import refuse_run

    refuse_run(source)
    place = await fork_place(store, source, turn=point.turn, message=point.message, orphans=orphans)
    record = await fork_there(store, source, place, name=name, plugins=plugins)
    await _record(store, actor, "session.fork", record, source=source.session_id, at=place.at)
    return Forked(record, place)


async def rename_session(store: SessionStore, actor: Actor, session_id: str, name: str) -> SessionRecord:
    """Give a session another name, and return its record. Raises `InvalidName`, `SessionNotFound`."""
    name = check_name(name)
    await store.update(session_id, name=name)
    record = await store.get(session_id)
    await _record(store, actor, "session.rename", record, name=name)
    return record


async def find_forks(store: SessionStore, session_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the ids of the forks of each of these sessions, without those among them."""
    forks: dict[str, list[str]] = {session_id: [] for session_id in session_ids}
    for each in await store.sessions():
        if each.fork_of in forks and each.session_id not in forks:
            forks[each.fork_of].append(each.session_id)
    return forks


async def delete_sessions(store: SessionStore, actor: Actor, records: Sequence[SessionRecord]) -> None:
    """Delete sessions, with their logs, what is kept of their files and what they ask; forks keep the shared messages.

    The caller has asked `refuse_deletion` about each.
    """
    from asyncio import to_thread

    from ..background.worktree_steps import release_worktrees
    from ..sessions.kept_files import forget_files
    from .approvals import withdraw_questions

    await withdraw_questions(store, actor, {record.session_id for record in records})
    await release_worktrees(record.session_id for record in records)
    for record in records:
        await store.delete(record.session_id)
        await _record(store, actor, "session.delete", record, name=record.name)
    await to_thread(forget_files, [record.session_id for record in records])


async def repair_session(store: SessionStore, actor: Actor, session_id: str) -> list[Finding]:
    """Repair the faults of a stored session, and return them."""
    from ..sessions.repairing import repair

    findings = await repair(store, session_id)
    if findings:
        record = await store.get(session_id)
        await _record(store, actor, "session.repair", record, faults=[each.kind for each in findings])
    return findings


async def _record(store: SessionStore, actor: Actor, act: str, record: SessionRecord, **facts: Any) -> None:
    session_id = record.session_id
    await record_act(store, actor, act, session_id, project=record.project, session_id=session_id, **facts)
