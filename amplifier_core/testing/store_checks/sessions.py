"""Check every rule of a `SessionStore`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...errors import InvalidSessionId, SessionConflict, SessionExists, SessionNotFound
from ...storage import SessionRecord
from .rules import collect_checks, refuses, require

if TYPE_CHECKING:
    from ...storage import SessionStore
    from ...transcript import Message

HOSTILE_IDS = ("", ".", "../up", "a/b", "a b", "a\0b", "-a", "NUL", "x" * 129, "é", "a'--", "a\n")
LATER = datetime(2100, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)


def _messages(count: int, of: str = "m") -> list[Message]:
    return [{"role": "user", "content": f"{of}{number}"} for number in range(count)]


async def _session(store: SessionStore, session_id: str, count: int, **fields: Any) -> list[Message]:
    await store.create(SessionRecord(session_id, **fields))
    await store.append(session_id, _messages(count, session_id), at=0)
    return _messages(count, session_id)


async def check_01_a_session_is_returned_as_it_was_stored(store: SessionStore) -> None:
    """Every field, times to the microsecond."""
    record = SessionRecord(
        "first-1",
        parent_id="parent",
        name="Größe \N{PARTY POPPER}",
        bundle="reviewer",
        bundle_source="bundle.md",
        bundle_digest="sha256:0",
        project="/projects/a b",
        status="idle",
        event_id="e1",
        created=LATER - timedelta(days=1),
        updated=LATER,
        turn_count=3,
        error="",
        config={"session": {"list": [1, 2.5, None, True], "text": "ü\0\n"}},
        metadata={"tags": []},
    )
    created = await store.create(record)
    require(created == record, "create must return the record")
    require(await store.get("first-1") == record, "get must return the record as it was created")
    require(await store.read("first-1") == [], "a new session must have no messages")


async def check_02_an_id_is_used_once(store: SessionStore) -> None:
    """A second session of the id is refused and changes nothing."""
    messages = await _session(store, "twice", 2)
    before = await store.get("twice")
    await refuses(store.create(SessionRecord("twice", name="other")), SessionExists, "create of an id that is stored")
    require(await store.get("twice") == before, "a refused create must not change the session that is there")
    require(await store.read("twice") == messages, "a refused create must not change the messages that are there")


async def check_03_an_unknown_session_is_not_found(store: SessionStore) -> None:
    """By no method."""
    await refuses(store.get("nobody"), SessionNotFound, "get of an unknown session")
    await refuses(store.read("nobody"), SessionNotFound, "read of an unknown session")
    await refuses(store.append("nobody", _messages(1), at=0), SessionNotFound, "append to an unknown session")
    await refuses(store.update("nobody", name="x"), SessionNotFound, "update of an unknown session")
    fork = store.create(SessionRecord("fork", fork_of="nobody", fork_at=0))
    await refuses(fork, SessionNotFound, "create of a fork of an unknown session")
    require(await store.sessions() == [], "what failed must leave no session behind")


async def check_04_what_is_no_session_id_is_refused(store: SessionStore) -> None:
    """Before it reaches a path, a query or a log."""
    for session_id in HOSTILE_IDS:
        shown = f"the id {session_id[:20]!r}"
        await refuses(store.create(SessionRecord(session_id)), InvalidSessionId, f"create with {shown}")
        await refuses(store.get(session_id), InvalidSessionId, f"get of {shown}")
        await refuses(store.read(session_id), InvalidSessionId, f"read of {shown}")
        await refuses(store.append(session_id, _messages(1), at=0), InvalidSessionId, f"append to {shown}")
        await refuses(store.update(session_id, name="x"), InvalidSessionId, f"update of {shown}")
        fork = store.create(SessionRecord("fork", fork_of=session_id, fork_at=0))
        await refuses(fork, InvalidSessionId, f"create of a fork of {shown}")


async def check_05_messages_are_returned_as_they_were_appended(store: SessionStore) -> None:
    """In order, with any text and structure."""
    await store.create(SessionRecord("s"))
    blocks = [{"type": "tool_result", "output": {"deep": [[1, -0.5, None], {"k": False}]}}, {"text": "\0\u2028\r\n\"'"}]
    messages: list[Message] = [{"role": "user", "content": "日本 \N{PARTY POPPER}"}, {"content": blocks}, {}]
    require(await store.append("s", messages[:2], at=0) == 2, "append must return the new count")
    require(await store.append("s", messages[2:], at=2) == 3, "append must return the new count")
    require(await store.read("s") == messages, "read must return the messages as they were appended")
    require((await store.get("s")).message_count == 3, "message_count must count the messages")


async def check_06_messages_are_appended_all_or_none(store: SessionStore) -> None:
    """One message without a JSON form keeps the others out."""
    messages = await _session(store, "s", 1)
    await refuses(store.append("s", [*_messages(2), {"content": object()}], at=1), Exception, "append of an object()")
    require(await store.read("s") == messages, "a failed append must not store some of its messages")
    require(await store.append("s", _messages(1), at=1) == 2, "a failed append must not stop the next one")


async def check_07_an_append_elsewhere_than_at_the_end_is_a_conflict(store: SessionStore) -> None:
    """Somebody else wrote the history, or the writer is ahead of it."""
    messages = await _session(store, "s", 3)
    for at in (0, 2, 4):
        await refuses(store.append("s", _messages(1), at=at), SessionConflict, f"append at {at} to 3 messages")
    await refuses(store.append("s", [], at=2), SessionConflict, "append of nothing at 2 to 3 messages")
    require(await store.append("s", [], at=3) == 3, "append of nothing at the end must return the count")
    require(await store.read("s") == messages, "a conflict must not change the history")


async def check_08_of_two_appends_at_one_place_one_wins(store: SessionStore) -> None:
    """And no turn is interleaved with another."""
    await store.create(SessionRecord("s"))
    turns = [_messages(3, of=f"turn{number}-") for number in range(5)]
    outcomes = await asyncio.gather(*(store.append("s", turn, at=0) for turn in turns), return_exceptions=True)
    conflicts = sum(isinstance(outcome, SessionConflict) for outcome in outcomes)
    require(outcomes.count(3) == 1 and conflicts == 4, f"one of five appends at 0 must win, not {outcomes}")
    require(await store.read("s") == turns[outcomes.index(3)], "the history must be the turn that won")


async def check_09_a_range_is_read_as_a_slice(store: SessionStore) -> None:
    """A range past the end does not fail, and a number below zero counts as zero."""
    messages = await _session(store, "s", 6)
    for start in (-9, -1, 0, 1, 5, 6, 9):
        for stop in (None, -1, 0, 1, 4, 6, 9):
            what = f"from {start} to {stop} must return what a slice of the whole would, with 0 for a number below it"
            expected = messages[max(0, start) : stop if stop is None else max(0, stop)]
            require(await store.read("s", start, stop) == expected, f"read {what}")
            require(store.read_sync("s", start, stop) == expected, f"read_sync {what}")


async def check_10_a_fork_begins_with_what_it_shares(store: SessionStore) -> None:
    """Up to any fork point within the source."""
    messages = await _session(store, "source", 4)
    for at in range(5):
        created = await store.create(SessionRecord(f"at{at}", fork_of="source", fork_at=at))
        require((created.fork_of, created.fork_at) == ("source", at), "create must return whose messages are shared")
        require(created.message_count == at, "message_count of a fork must count the shared messages")
        require(await store.get(f"at{at}") == created, "get must return the record that create returned")
        require(await store.read(f"at{at}") == messages[:at], f"a fork at {at} must begin with the first {at} messages")


async def check_11_a_fork_and_its_source_go_on_apart(store: SessionStore) -> None:
    """Neither sees later messages of the other."""
    shared = (await _session(store, "source", 3))[:2]
    await store.create(SessionRecord("fork", fork_of="source", fork_at=2))
    await store.append("fork", _messages(2, "own"), at=2)
    await store.append("source", _messages(1, "later"), at=3)
    require(await store.read("fork") == shared + _messages(2, "own"), "a fork must hold what it shares, then its own")
    expected = _messages(3, "source") + _messages(1, "later")
    require(await store.read("source") == expected, "the source must not see the messages of its fork")
    require(await store.read("fork", 1, 3) == [shared[1], *_messages(1, "own")], "a range may span the fork point")


async def check_12_a_fork_never_writes_to_its_source(store: SessionStore) -> None:
    """Not even the time."""
    messages = await _session(store, "source", 2)
    before = await store.get("source")
    await store.create(SessionRecord("fork", fork_of="source", fork_at=1))
    await store.append("fork", _messages(1, "own"), at=1)
    await store.update("fork", name="other")
    require(await store.get("source") == before, "the record of the source must stay as it was")
    require(await store.read("source") == messages, "the messages of the source must stay as they were")


async def check_13_forks_are_forked(store: SessionStore) -> None:
    """To any depth, and before the fork point of their source."""
    expected = {"f0": await _session(store, "f0", 5)}
    for number, at in enumerate((4, 6, 2, 0, 1), 1):
        source, fork = f"f{number - 1}", f"f{number}"
        await store.create(SessionRecord(fork, fork_of=source, fork_at=at))
        await store.append(fork, _messages(3, fork), at=at)
        expected[fork] = expected[source][:at] + _messages(3, fork)
    for fork, messages in expected.items():
        require(await store.read(fork) == messages, f"{fork}, a fork of forks, must hold what its source held then")
        for start in range(len(messages) + 1):
            for stop in range(start, len(messages) + 1):
                read = await store.read(fork, start, stop)
                require(read == messages[start:stop], f"read of {fork} from {start} to {stop} must be that slice")


async def check_14_a_fork_point_outside_the_source_is_refused(store: SessionStore) -> None:
    """And leaves no session."""
    await _session(store, "source", 2)
    for at in (-1, 3):
        fork = store.create(SessionRecord("fork", fork_of="source", fork_at=at))
        await refuses(fork, IndexError, f"create of a fork at {at} of 2 messages")
    await refuses(store.get("fork"), SessionNotFound, "get of a fork that was refused")


async def check_15_fields_are_changed_and_the_time_with_them(store: SessionStore) -> None:
    """The named fields, and no others."""
    before = await store.create(SessionRecord("s", name="old", updated=datetime(2020, 1, 1, tzinfo=UTC)))
    await store.update("s", name="new", status="completed", turn_count=2, error="none", metadata={"a": [1]})
    after = await store.get("s")
    expected = replace(before, name="new", status="completed", turn_count=2, error="none", metadata={"a": [1]})
    require(after.updated > before.updated, "update must set `updated`")
    require(replace(after, updated=before.updated) == expected, "update must change what it names, and nothing else")
    await refuses(store.update("s", name="x", no_such_field=1), TypeError, "update of a field that does not exist")
    require(await store.get("s") == after, "a refused update must change nothing")


async def check_16_sessions_are_listed_the_last_updated_first(store: SessionStore) -> None:
    """Of one project, or of all."""
    for number, project in enumerate(("/a", "/b", "/a", "/a")):
        updated = datetime(2020, 1, 1 + number, tzinfo=UTC)
        await store.create(SessionRecord(f"s{number}", project=project, updated=updated))
    await store.update("s1", name="x")
    listed = {
        "all": await store.sessions(),
        "/a": await store.sessions(project="/a"),
        "2 of /a": await store.sessions(project="/a", limit=2),
        "/none": await store.sessions(project="/none"),
    }
    ids = {name: [record.session_id for record in records] for name, records in listed.items()}
    expected = {"all": ["s1", "s3", "s2", "s0"], "/a": ["s3", "s2", "s0"], "2 of /a": ["s3", "s2"], "/none": []}
    require(ids == expected, f"sessions must be listed the last updated first: {expected}, not {ids}")


async def check_17_sessions_are_found_by_the_beginning_of_their_id(store: SessionStore) -> None:
    """Taken as it is: nothing in it stands for something else."""
    for number, session_id in enumerate(("a_b-1", "axb-1", "a_b-2", "A_b-1")):
        await store.create(SessionRecord(session_id, created=datetime(2020, 1, 1 + number, tzinfo=UTC)))
    for prefix, expected in {"a_b": ["a_b-2", "a_b-1"], "a_b-1": ["a_b-1"], "a%": [], "b": []}.items():
        found = [record.session_id for record in await store.find(prefix)]
        require(found == expected, f"find({prefix!r}) must return {expected}, newest first, not {found}")
    for number in range(25):
        await store.create(SessionRecord(f"many-{number}"))
    require(len(await store.find("many")) == 20, "find must return at most 20 sessions")


async def check_18_what_was_handed_over_is_not_shared(store: SessionStore) -> None:
    """Changing an appended message, or one returned by `read`, does not change the history."""
    await store.create(SessionRecord("s"))
    message: Message = {"content": ["said"]}
    await store.append("s", [message], at=0)
    message["content"].append("changed")
    require(await store.read("s") == [{"content": ["said"]}], "a message must be stored as it was when it was appended")
    (await store.read("s"))[0]["content"].append("changed")
    require(await store.read("s") == [{"content": ["said"]}], "a message that was read must not lead into the store")


async def check_19_a_store_is_closed_more_than_once(store: SessionStore) -> None:
    """The second time does nothing."""
    await _session(store, "s", 1)
    await store.close()
    await store.close()


async def check_55_a_deleted_session_is_gone(store: SessionStore) -> None:
    """No method finds it; the others stay the same, and its id is free again."""
    await _session(store, "gone", 3)
    messages = await _session(store, "other", 2)
    before = await store.get("other")
    await store.delete("gone")
    await refuses(store.get("gone"), SessionNotFound, "get of a deleted session")
    await refuses(store.read("gone"), SessionNotFound, "read of a deleted session")
    await refuses(store.append("gone", _messages(1), at=3), SessionNotFound, "append to a deleted session")
    await refuses(store.delete("gone"), SessionNotFound, "delete of a deleted session")
    await refuses(store.delete("../up"), InvalidSessionId, "delete of what is no session id")
    require(await store.find("gone") == [], "find must not return a deleted session")
    require(await store.sessions() == [before], "sessions must not return a deleted session, and change no other one")
    require(await store.read("other") == messages, "delete must not change the messages of another session")
    await store.create(SessionRecord("gone"))
    require(await store.read("gone") == [], "a session that takes the id of a deleted one must begin empty")


async def check_56_forks_keep_what_they_share_of_a_deleted_session(store: SessionStore) -> None:
    """Whichever of them goes first."""
    messages = await _session(store, "source", 4)
    await store.create(SessionRecord("fork", fork_of="source", fork_at=3))
    await store.append("fork", _messages(2, "fork"), at=3)
    await store.create(SessionRecord("deep", fork_of="fork", fork_at=4))
    expected = messages[:3] + _messages(2, "fork")
    await store.delete("source")
    require(await store.read("fork") == expected, "a fork must keep what it shares of a deleted session")
    await store.delete("fork")
    require(await store.read("deep") == expected[:4], "a fork of a fork must keep what it shares of both")
    require(await store.append("deep", _messages(1), at=4) == 5, "a fork of a deleted session must go on")
    require(await store.read("deep", 2, 5) == [*expected[2:4], *_messages(1)], "a range may span what is shared")
    await store.delete("deep")
    require(await store.sessions() == [], "nothing may be left when all were deleted")


async def check_57_nothing_is_wrong_with_a_session_as_it_was_stored(store: SessionStore) -> None:
    """And mending it changes nothing."""
    await _session(store, "source", 3)
    await store.create(SessionRecord("fork", fork_of="source", fork_at=2, parent_id="source"))
    await store.create(SessionRecord("empty"))
    for session_id in ("source", "fork", "empty"):
        before = await store.get(session_id), await store.read(session_id)
        require(await store.examine(session_id) == [], f"examine must find nothing wrong with '{session_id}'")
        require(await store.repair(session_id) == [], f"repair must find nothing wrong with '{session_id}'")
        after = await store.get(session_id), await store.read(session_id)
        require(after == before, "repair must not change a session that nothing is wrong with")
    for method in (store.examine, store.repair):
        await refuses(method("nobody"), SessionNotFound, f"{method.__name__} of an unknown session")
        await refuses(method("../up"), InvalidSessionId, f"{method.__name__} of what is no session id")


async def check_58_a_lost_parent_is_found_and_repaired(store: SessionStore) -> None:
    """The session loses no message."""
    messages = await _session(store, "child", 2, parent_id="nobody")
    found = await store.examine("child")
    require([finding.kind for finding in found] == ["missing_parent"], f"examine must find a lost parent, not {found}")
    require((await store.get("child")).parent_id == "nobody", "examine must change nothing")
    require(await store.repair("child") == found, "repair must return what examine finds")
    require((await store.get("child")).parent_id is None, "repair must let the session stand without a parent")
    require(await store.examine("child") == [], "nothing may be wrong with a session after its repair")
    require(await store.read("child") == messages, "a lost parent must not cost a message")


async def check_59_a_repaired_fork_of_a_deleted_session_is_whole(store: SessionStore) -> None:
    """It keeps every message."""
    messages = await _session(store, "source", 3)
    await store.create(SessionRecord("fork", fork_of="source", fork_at=2, parent_id="source"))
    await store.append("fork", _messages(1), at=2)
    await store.delete("source")
    await store.repair("fork")
    require(await store.examine("fork") == [], "nothing may be wrong with a session after its repair")
    require(await store.read("fork") == [*messages[:2], *_messages(1)], "repair must keep what the fork shares")


async def check_60_no_session_descends_from_itself(store: SessionStore) -> None:
    """A parent never changes; and a deleted session does not come back below its own descendants."""
    await store.create(SessionRecord("above"))
    await store.create(SessionRecord("child", parent_id="above"))
    await store.create(SessionRecord("grandchild", parent_id="child"))
    for parent in ("grandchild", None):
        await refuses(store.update("child", parent_id=parent), TypeError, "update of the parent")
    require((await store.get("child")).parent_id == "above", "a refused update must not change the parent")
    await store.delete("above")
    for parent in ("above", "child", "grandchild"):
        circle = store.create(SessionRecord("above", parent_id=parent))
        await refuses(circle, SessionConflict, f"create of 'above' with the parent {parent}, which descends from it,")
    await refuses(store.get("above"), SessionNotFound, "get of a session that was refused")
    again = await store.create(SessionRecord("above", parent_id="elsewhere"))
    require(again.parent_id == "elsewhere", "create must take a parent that does not descend from the session")
    require((await store.get("grandchild")).parent_id == "child", "create must not change who made another session")


SESSION_STORE_CHECKS = collect_checks(globals())
