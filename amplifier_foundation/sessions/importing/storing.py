"""Store sessions of other programs, again and again without storing anything twice.

The messages tell what is new: those of the source are compared with the stored ones. A stored session that is the
beginning of its source grows. Where the two part, because somebody has resumed the session here or gone back in the
other program, a fork of the stored session gets the rest. Its id is made from its first message, so the next import
finds it. The id of the session decides between two processes that import it at once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound
from amplifier_core.storage import SessionRecord
from amplifier_core.utils.secrets import redact_all

from ...paths import project_of
from ..costs import USAGE
from ..forks import ForkPlace, fork_there
from ..history import final_answer, is_user_turn
from ..lock import holder_of, session_lock
from ..presence import refuse_occupied
from ..uncounted import COUNTED, counted
from ..untrusted import UNTRUSTED
from ..usage import Usage, sum_usages
from .sources import FROM_A_FILE, make_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import SessionStore, Status
    from amplifier_core.transcript import Message

    from .sources import SourceSession

IMPORTED = "imported"
"""The member of a record's metadata with the origin of an imported session."""

BATCH, BATCH_LENGTH = 64, 4_000_000
"""The messages of one append, and the characters from which fewer are one."""
TRIES = 100
"""How often another process may be faster; each time, one of the two gets on."""
PATIENCE, PAUSE = 20, 0.1
"""How often, and after how many seconds, a session in use is tried again: another import ends soon."""

State = Literal["new", "grown", "unchanged", "fork", "own", "adopted", "kept"]
"""What an import does: `own` is a session of this store that was not imported.

The person says that a session of anybody's file is theirs: it is `adopted`, or `kept` with messages that their file
lacks.
"""
_NOTHING_WRITTEN = ("own", "unchanged", "kept")


class Imported(NamedTuple):
    """The outcome for one history; without an import, what it would be."""

    source: SourceSession
    state: State
    session_id: str
    fork_of: str | None
    fork_at: int
    messages: int
    """All messages of the session; shared ones are among them."""
    added: int
    turns: int
    project: str


class _Sum(NamedTuple):
    """What all messages of a history come to; `last` is the last one."""

    messages: int
    turns: int
    last: Message | None
    tokens: Sequence[tuple[int, Usage]]
    """What a message says that it has used, with its position."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> _Sum:
        count = turns = 0
        last: Message | None = None
        tokens = []
        for last in messages:
            if (spent := _tokens(last)) is not None:
                tokens.append((count, Usage.from_dict(spent)))
            count += 1
            turns += is_user_turn(last)
        return cls(count, turns, last, tokens)

    def usage_of(self, record: SessionRecord) -> dict[str, Any] | None:
        """Return what the messages come to that a session does not share; None if they tell nothing."""
        usage = sum_usages([spent for position, spent in self.tokens if position >= (record.fork_at or 0)])
        return usage.to_dict() if usage.requests else None


class _Place(NamedTuple):
    """The place for a history: the session that it continues from message `at` on; or a new one, of a fork if any."""

    state: State
    session_id: str
    at: int
    record: SessionRecord | None = None
    """The session that grows, or the source of the fork."""


class SessionImporter:
    """Stores sessions of other programs; with `is_trial`, it only says what it would do."""

    def __init__(self, store: SessionStore, plugins: Plugins | None = None, *, is_trial: bool = False) -> None:
        self._store = store
        self._plugins = plugins
        self._is_trial = is_trial

    async def take(self, source: SourceSession) -> Imported | None:
        """Store one history of another program; None if it has no messages.

        Raises `SessionConflict` while a process works in the session, the errors of the store, and `OSError`.
        """
        whole = _Sum.of(source.read())
        if not whole.messages:
            return None
        for attempt in range(1, TRIES + 1):
            place = await self._find_place(source, whole)
            if self._is_trial or place.state in _NOTHING_WRITTEN:
                break
            try:
                await self._write(source, place, whole)
                break
            except (SessionConflict, SessionExists):
                is_in_use = place.state in ("grown", "adopted") and holder_of(place.session_id) is not None
                if attempt == TRIES or (is_in_use and attempt >= PATIENCE):
                    raise
                await asyncio.sleep(PAUSE if is_in_use else 0)
        fork = place.record.session_id if place.state == "fork" and place.record is not None else None
        added = whole.messages - place.at if place.state not in _NOTHING_WRITTEN else 0
        stays = place.state in _NOTHING_WRITTEN or (
            place.state == "grown" and place.record is not None and not _is_adopted(place.record, source)
        )
        there = place.record if stays else None
        facts = (whole.messages, added, whole.turns, there.project if there is not None else _project(source))
        return Imported(source, place.state, place.session_id, fork, place.at if fork else 0, *facts)

    async def _find_place(self, source: SourceSession, whole: _Sum) -> _Place:
        """Return where a history goes: along the sessions that share its beginning, to the one that shares the most."""
        session_id, shares, above = source.session_id, 0, None
        while True:
            try:
                record = await self._store.get(session_id)
            except SessionNotFound:
                return _Place("fork" if above is not None else "new", session_id, shares, above)
            if not is_imported(record):
                return _Place("own", session_id, 0, record)
            same, first, is_late = await self._compare(record, source.read())
            if first is None:
                is_late = is_late and whole.usage_of(record) != record.metadata.get(USAGE)
                may_tell = source.is_own or record.metadata.get(UNTRUSTED) == FROM_A_FILE
                if (is_late or _is_unfinished(record)) and may_tell and same == record.message_count:
                    return _Place("grown", session_id, same, record)
                if not _is_adopted(record, source):
                    return _Place("unchanged", session_id, same, record)
                return _Place("adopted" if same == record.message_count else "kept", session_id, same, record)
            if same == record.message_count:
                return _Place("grown", session_id, same, record)
            above, shares = (record, same) if same else (None, 0)
            # The id belongs to this message after these ones: the sessions on the way share more and more.
            text = json.dumps([record.session_id, same, _content(first)], sort_keys=True)
            session_id = make_id(source.session_id, sha256(text.encode()).hexdigest()[:8])

    async def _compare(self, record: SessionRecord, fresh: Iterator[Message]) -> tuple[int, Message | None, bool]:
        """Return how many messages a session begins with as its source does, and the source's next one, if any.

        The last is whether the source tells tokens that a stored message lacks: they were written after it.
        """
        same, count, is_late = 0, record.message_count, False
        for start in range(0, count, BATCH):
            for stored in await self._store.read(record.session_id, start, min(start + BATCH, count)):
                message = next(fresh, None)
                if message is None or _content(message) != _content(stored):
                    return same, message, is_late
                same += 1
                is_late = is_late or (_tokens(message) is not None and _tokens(stored) is None)
        return same, next(fresh, None), is_late

    async def _write(self, source: SourceSession, place: _Place, whole: _Sum) -> None:
        """Store what is missing at a place. The session is found again after a crash: it is marked from the start."""
        origin = {"from": source.program, "id": source.source_id, "path": str(source.path)}
        origin |= {"session_id": place.session_id, **({"agent": source.agent} if source.agent else {})}
        about: dict[str, Any] = {IMPORTED: redact_all(origin)}
        about |= {UNTRUSTED: source.strangers} if source.strangers else {}
        if place.state == "new":
            await self._create(source, place.session_id, about)
            await self._append(source, place, about, whole)
            return
        assert place.record is not None
        if place.state == "fork":
            fork: dict[str, Any] = {"session_id": place.session_id, "project": _project(source), "metadata": about}
            await fork_there(self._store, place.record, ForkPlace(place.at, 0), plugins=self._plugins, **fork)
            await self._append(source, place, about, whole)
            return
        with session_lock(place.session_id):  # a conversation in it would lose its place in the history
            refuse_occupied(place.record)
            await self._append(source, place, about, whole)

    async def _create(self, source: SourceSession, session_id: str, about: Mapping[str, Any]) -> None:
        parent_id = source.parent_id if source.parent_id != session_id else None
        try:
            if parent_id is not None and not is_imported(await self._store.get(parent_id)) and not source.is_own:
                parent_id = None  # nobody's file puts a session below one of the person's
        except SessionNotFound:
            parent_id = None
        record = SessionRecord(
            session_id=session_id,
            parent_id=parent_id,
            name=source.name,
            project=_project(source),
            status="idle",
            created=source.created or datetime.now(UTC),
            metadata=about,
        )
        await self._store.create(record)

    async def _append(self, source: SourceSession, place: _Place, about: Mapping[str, Any], whole: _Sum) -> None:
        """Append the messages from the place on, then store what all of the session's own come to."""
        at = place.at
        for fresh in split_batches(source.read(), at):
            if fresh:
                at = await self._store.append(place.session_id, fresh, at=at)
        record = await self._store.get(place.session_id)
        status: Status = "completed" if final_answer([whole.last or {}]) is not None else "interrupted"
        usage = whole.usage_of(record)
        spent = {COUNTED: counted(at), **({USAGE: usage} if usage is not None else {})}
        metadata, changes = {**record.metadata, **about, **spent}, {}
        if record.message_count == at and _is_adopted(record, source):  # no other import has added any of a stranger
            metadata = {name: value for name, value in metadata.items() if value != FROM_A_FILE or name != UNTRUSTED}
            changes["project"] = _project(source)
        await self._store.update(place.session_id, status=status, turn_count=whole.turns, metadata=metadata, **changes)


def is_imported(record: SessionRecord) -> bool:
    """Return whether an import has made a session; a fork that somebody made of one is their own."""
    origin = record.metadata.get(IMPORTED)
    return isinstance(origin, dict) and origin.get("session_id") == record.session_id


def _is_unfinished(record: SessionRecord) -> bool:
    """Return whether an import has ended before it stored what the messages come to."""
    known = record.metadata.get(COUNTED)
    return not isinstance(known, list) or known[0] < record.message_count


def _is_adopted(record: SessionRecord, source: SourceSession) -> bool:
    """Return whether the person's own file has a session that was imported from anybody's."""
    return source.is_own and record.metadata.get(UNTRUSTED) == FROM_A_FILE


def split_batches(messages: Iterator[Message], start: int) -> Iterator[list[Message]]:
    """Yield the messages from `start` on in batches for one append."""
    batch: list[Message] = []
    length = 0
    for position, message in enumerate(messages):
        if position < start:
            continue
        batch.append(message)
        length += len(str(message["content"]))
        if len(batch) == BATCH or length > BATCH_LENGTH:
            yield batch
            batch, length = [], 0
    yield batch


def _content(message: Message) -> dict[str, Any]:
    return {name: message.get(name) for name in ("role", "content", "tool_calls", "tool_call_id", "name")}


def _tokens(message: Message) -> dict[str, Any] | None:
    spent = (message.get("metadata") or {}).get("usage")
    return spent if isinstance(spent, dict) else None


def _project(source: SourceSession) -> str:
    """Return the project of a session: its folder, perhaps a lost one, or else the current folder."""
    folder = source.folder
    return project_of(folder) if folder and Path(folder).is_absolute() and "\0" not in folder else project_of()


def count_states(outcomes: Iterable[Imported]) -> Counter[str]:
    """Return how many sessions an import has stored, by state."""
    return Counter(each.state for each in outcomes)
