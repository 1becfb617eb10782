"""The contract of a store, as numbered checks that its author runs.

    async def test_the_contract(tmp_path):
        numbers = itertools.count()
        await check_store(lambda: MyStore(tmp_path / str(next(numbers))))

Each check is given a store that is empty. A broken rule raises `AssertionError` with a sentence that names it. Nothing
here needs a test runner; one that parametrises does it over `SESSION_STORE_CHECKS` and `INBOX_CHECKS`.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..errors import InvalidSessionId, SessionConflict, SessionExists, SessionNotFound, StaleEpoch
from ..events import SessionEvent
from ..storage import SessionRecord
from ..triggers import TriggerEvent, TriggerType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..storage import Delivery, DurableStore, SessionStore
    from ..transcript import Message

    OpenStore: TypeAlias = Callable[[], Awaitable[SessionStore] | SessionStore]

HOSTILE_IDS = ("", ".", "../up", "a/b", "a b", "a\0b", "-a", "NUL", "x" * 129, "é", "a'--", "a\n")
LATER = datetime(2100, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)


async def check_store(open_store: OpenStore, *, inbox: bool = True) -> None:
    """Run every check, each on a store of its own that `open_store` makes and that is closed afterwards.

    `inbox=False` leaves out what only background sessions need. Raises `AssertionError`.
    """
    for session_check in SESSION_STORE_CHECKS:
        await _run(session_check, open_store)
    for inbox_check in INBOX_CHECKS if inbox else ():
        await _run(inbox_check, open_store)


async def _run(check: Callable[[Any], Awaitable[None]], open_store: OpenStore) -> None:
    opened = open_store()
    store = cast("SessionStore", await opened if inspect.isawaitable(opened) else opened)
    try:
        await check(store)
    except AssertionError as broken:
        raise AssertionError(f"{getattr(check, '__name__', check)}: {broken}") from broken
    finally:
        await store.close()


def _require(kept: bool, rule: str) -> None:
    if not kept:
        raise AssertionError(rule)


async def _refuses(attempt: Awaitable[object], error: type[Exception], what: str) -> None:
    try:
        await attempt
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{what} must raise {error.__name__}, not {type(other).__name__}: {other}") from other
    raise AssertionError(f"{what} must raise {error.__name__}")


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
        project="/work/a project",
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
    _require(created == record, "create must return the record")
    _require(await store.get("first-1") == record, "get must return the record as it was created")
    _require(await store.read("first-1") == [], "a new session must have no messages")


async def check_02_an_id_is_used_once(store: SessionStore) -> None:
    """A second session of the id is refused and changes nothing."""
    messages = await _session(store, "twice", 2)
    before = await store.get("twice")
    await _refuses(store.create(SessionRecord("twice", name="other")), SessionExists, "create of an id that is stored")
    _require(await store.get("twice") == before, "a refused create must not change the session that is there")
    _require(await store.read("twice") == messages, "a refused create must not change the messages that are there")


async def check_03_an_unknown_session_is_not_found(store: SessionStore) -> None:
    """By no method."""
    await _refuses(store.get("nobody"), SessionNotFound, "get of an unknown session")
    await _refuses(store.read("nobody"), SessionNotFound, "read of an unknown session")
    await _refuses(store.append("nobody", _messages(1), at=0), SessionNotFound, "append to an unknown session")
    await _refuses(store.update("nobody", name="x"), SessionNotFound, "update of an unknown session")
    fork = store.create(SessionRecord("fork", fork_of="nobody", fork_at=0))
    await _refuses(fork, SessionNotFound, "create of a fork of an unknown session")
    _require(await store.sessions() == [], "what failed must leave no session behind")


async def check_04_what_is_no_session_id_is_refused(store: SessionStore) -> None:
    """Before it reaches a path, a query or a log."""
    for session_id in HOSTILE_IDS:
        shown = f"the id {session_id[:20]!r}"
        await _refuses(store.create(SessionRecord(session_id)), InvalidSessionId, f"create with {shown}")
        await _refuses(store.get(session_id), InvalidSessionId, f"get of {shown}")
        await _refuses(store.read(session_id), InvalidSessionId, f"read of {shown}")
        await _refuses(store.append(session_id, _messages(1), at=0), InvalidSessionId, f"append to {shown}")
        await _refuses(store.update(session_id, name="x"), InvalidSessionId, f"update of {shown}")
        fork = store.create(SessionRecord("fork", fork_of=session_id, fork_at=0))
        await _refuses(fork, InvalidSessionId, f"create of a fork of {shown}")


async def check_05_messages_are_returned_as_they_were_appended(store: SessionStore) -> None:
    """In order, whatever text and structure they hold."""
    await store.create(SessionRecord("s"))
    blocks = [{"type": "tool_result", "output": {"deep": [[1, -0.5, None], {"k": False}]}}, {"text": "\0\u2028\r\n\"'"}]
    messages: list[Message] = [{"role": "user", "content": "日本 \N{PARTY POPPER}"}, {"content": blocks}, {}]
    _require(await store.append("s", messages[:2], at=0) == 2, "append must return the new count")
    _require(await store.append("s", messages[2:], at=2) == 3, "append must return the new count")
    _require(await store.read("s") == messages, "read must return the messages as they were appended")
    _require((await store.get("s")).message_count == 3, "message_count must count the messages")


async def check_06_messages_are_appended_all_or_none(store: SessionStore) -> None:
    """One that cannot be stored keeps the others out."""
    messages = await _session(store, "s", 1)
    await _refuses(store.append("s", [*_messages(2), {"content": object()}], at=1), Exception, "append of an object()")
    _require(await store.read("s") == messages, "a failed append must not store some of its messages")
    _require(await store.append("s", _messages(1), at=1) == 2, "a failed append must not stop the next one")


async def check_07_an_append_elsewhere_than_at_the_end_is_a_conflict(store: SessionStore) -> None:
    """Somebody else wrote the history, or the writer is ahead of it."""
    messages = await _session(store, "s", 3)
    for at in (0, 2, 4):
        await _refuses(store.append("s", _messages(1), at=at), SessionConflict, f"append at {at} to 3 messages")
    await _refuses(store.append("s", [], at=2), SessionConflict, "append of nothing at 2 to 3 messages")
    _require(await store.append("s", [], at=3) == 3, "append of nothing at the end must return the count")
    _require(await store.read("s") == messages, "a conflict must not change the history")


async def check_08_of_two_appends_at_one_place_one_wins(store: SessionStore) -> None:
    """And no turn is interleaved with another."""
    await store.create(SessionRecord("s"))
    turns = [_messages(3, of=f"turn{number}-") for number in range(5)]
    outcomes = await asyncio.gather(*(store.append("s", turn, at=0) for turn in turns), return_exceptions=True)
    conflicts = sum(isinstance(outcome, SessionConflict) for outcome in outcomes)
    _require(outcomes.count(3) == 1 and conflicts == 4, f"one of five appends at 0 must win, not {outcomes}")
    _require(await store.read("s") == turns[outcomes.index(3)], "the history must be the turn that won")


async def check_09_a_range_is_read_as_a_slice(store: SessionStore) -> None:
    """Without failing for one that goes past the end."""
    messages = await _session(store, "s", 6)
    for start in (0, 1, 5, 6, 9):
        for stop in (None, 0, 1, 4, 6, 9):
            _require(
                await store.read("s", start, stop) == messages[start:stop],
                f"read from {start} to {stop} must return what a slice of the whole would",
            )


async def check_10_a_fork_begins_with_what_it_shares(store: SessionStore) -> None:
    """Up to the fork point, which may be anywhere within the source."""
    messages = await _session(store, "source", 4)
    for at in range(5):
        created = await store.create(SessionRecord(f"at{at}", fork_of="source", fork_at=at))
        _require((created.fork_of, created.fork_at) == ("source", at), "create must return whose messages are shared")
        _require(created.message_count == at, "message_count of a fork must count the shared messages")
        _require(await store.get(f"at{at}") == created, "get must return the record that create returned")
        _require(
            await store.read(f"at{at}") == messages[:at], f"a fork at {at} must begin with the first {at} messages"
        )


async def check_11_a_fork_and_its_source_go_on_apart(store: SessionStore) -> None:
    """Neither sees what the other one appends later."""
    shared = (await _session(store, "source", 3))[:2]
    await store.create(SessionRecord("fork", fork_of="source", fork_at=2))
    await store.append("fork", _messages(2, "own"), at=2)
    await store.append("source", _messages(1, "later"), at=3)
    _require(await store.read("fork") == shared + _messages(2, "own"), "a fork must hold what it shares, then its own")
    expected = _messages(3, "source") + _messages(1, "later")
    _require(await store.read("source") == expected, "the source must not see the messages of its fork")
    _require(await store.read("fork", 1, 3) == [shared[1], *_messages(1, "own")], "a range may span the fork point")


async def check_12_a_fork_never_writes_to_its_source(store: SessionStore) -> None:
    """Not even the time."""
    messages = await _session(store, "source", 2)
    before = await store.get("source")
    await store.create(SessionRecord("fork", fork_of="source", fork_at=1))
    await store.append("fork", _messages(1, "own"), at=1)
    await store.update("fork", name="other")
    _require(await store.get("source") == before, "the record of the source must stay as it was")
    _require(await store.read("source") == messages, "the messages of the source must stay as they were")


async def check_13_forks_are_forked(store: SessionStore) -> None:
    """To any depth, and before the point at which their source was forked."""
    expected = {"f0": await _session(store, "f0", 5)}
    for number, at in enumerate((4, 6, 2, 0, 1), 1):
        source, fork = f"f{number - 1}", f"f{number}"
        await store.create(SessionRecord(fork, fork_of=source, fork_at=at))
        await store.append(fork, _messages(3, fork), at=at)
        expected[fork] = expected[source][:at] + _messages(3, fork)
    for fork, messages in expected.items():
        _require(await store.read(fork) == messages, f"{fork}, a fork of forks, must hold what its source held then")
        for start in range(len(messages) + 1):
            for stop in range(start, len(messages) + 1):
                read = await store.read(fork, start, stop)
                _require(read == messages[start:stop], f"read of {fork} from {start} to {stop} must be that slice")


async def check_14_a_fork_point_outside_the_source_is_refused(store: SessionStore) -> None:
    """And leaves no session."""
    await _session(store, "source", 2)
    for at in (-1, 3):
        fork = store.create(SessionRecord("fork", fork_of="source", fork_at=at))
        await _refuses(fork, IndexError, f"create of a fork at {at} of 2 messages")
    await _refuses(store.get("fork"), SessionNotFound, "get of a fork that was refused")


async def check_15_fields_are_changed_and_the_time_with_them(store: SessionStore) -> None:
    """Those that were named, and no others."""
    before = await store.create(SessionRecord("s", name="old", updated=datetime(2020, 1, 1, tzinfo=UTC)))
    await store.update("s", name="new", status="completed", turn_count=2, error="none", metadata={"a": [1]})
    after = await store.get("s")
    expected = replace(before, name="new", status="completed", turn_count=2, error="none", metadata={"a": [1]})
    _require(after.updated > before.updated, "update must set `updated`")
    _require(replace(after, updated=before.updated) == expected, "update must change what it names, and nothing else")
    await _refuses(store.update("s", name="x", no_such_field=1), TypeError, "update of a field that does not exist")
    _require(await store.get("s") == after, "a refused update must change nothing")


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
    _require(ids == expected, f"sessions must be listed the last updated first: {expected}, not {ids}")


async def check_17_sessions_are_found_by_the_beginning_of_their_id(store: SessionStore) -> None:
    """Taken as it is: nothing in it stands for something else."""
    for number, session_id in enumerate(("a_b-1", "axb-1", "a_b-2", "A_b-1")):
        await store.create(SessionRecord(session_id, created=datetime(2020, 1, 1 + number, tzinfo=UTC)))
    for prefix, expected in {"a_b": ["a_b-2", "a_b-1"], "a_b-1": ["a_b-1"], "a%": [], "b": []}.items():
        found = [record.session_id for record in await store.find(prefix)]
        _require(found == expected, f"find({prefix!r}) must return {expected}, newest first, not {found}")
    for number in range(25):
        await store.create(SessionRecord(f"many-{number}"))
    _require(len(await store.find("many")) == 20, "find must return at most 20 sessions")


async def check_18_what_was_handed_over_is_not_shared(store: SessionStore) -> None:
    """A caller that changes its message, or one that it read, does not change the history."""
    await store.create(SessionRecord("s"))
    message: Message = {"content": ["said"]}
    await store.append("s", [message], at=0)
    message["content"].append("changed")
    _require(
        await store.read("s") == [{"content": ["said"]}], "a message must be stored as it was when it was appended"
    )
    (await store.read("s"))[0]["content"].append("changed")
    _require(await store.read("s") == [{"content": ["said"]}], "a message that was read must not lead into the store")


async def check_19_a_store_is_closed_more_than_once(store: SessionStore) -> None:
    """The second time does nothing."""
    await _session(store, "s", 1)
    await store.close()
    await store.close()


def _event(source: str = "test", **fields: Any) -> TriggerEvent:
    return TriggerEvent(TriggerType.CUSTOM, source, **fields)


def _emitted(*names: str) -> list[SessionEvent]:
    return [SessionEvent(name, {"of": [name]}) for name in names]


async def _offered(store: DurableStore, source: str = "test", lane: str = "lane", **fields: Any) -> Delivery:
    delivery = await store.offer("/p", lane, "trigger", _event(source, **fields))
    _require(delivery is not None, "offer of an event that is new must return its delivery")
    return cast("Delivery", delivery)


async def _claimed(store: DurableStore, now: datetime = LATER, lane: str = "lane", as_id: str = "worker") -> Delivery:
    delivery = await store.claim("/p", lane, owner="me", lease=60, session_id=as_id, now=now)
    _require(delivery is not None, "claim must return the delivery that is due")
    return cast("Delivery", delivery)


async def _nothing_due(store: DurableStore, why: str, now: datetime = LATER, project: str = "/p") -> None:
    delivery = await store.claim(project, "lane", owner="other", lease=60, session_id="other", now=now)
    _require(delivery is None, f"claim must return None: {why}")


async def _stored(store: DurableStore) -> Delivery:
    return (await store.deliveries())[0]


async def check_20_events_are_logged_in_sequence(store: DurableStore) -> None:
    """And returned from any place on."""
    _require(await store.last_sequence() == 0, "last_sequence must be 0 before the first event")
    sent = [SessionEvent("work:done", {"n": [1, "ü"]}, "s1", LATER, "e1", "e0", 3), *_emitted("b", "c")]
    logged = [await store.emit(event) for event in sent]
    sequences = [event.sequence or 0 for event in logged]
    _require(0 < sequences[0] < sequences[1] < sequences[2], f"sequences must grow: {sequences}")
    _require([replace(event, sequence=None) for event in logged] == sent, "emit must return the event it was given")
    _require(await store.events() == logged, "events must return what was emitted, oldest first")
    _require(await store.events(since=sequences[0], limit=1) == logged[1:2], "events must begin after `since`")
    _require(await store.last_sequence() == sequences[2], "last_sequence must be that of the newest event")


async def check_21_an_event_that_was_offered_is_delivered(store: DurableStore) -> None:
    """As it was, to its own lane."""
    fields = {"file_path": "/f", "change_type": "modified", "event_name": "n", "source_session_id": "s", "depth": 2}
    event = _event(timestamp=LATER, data={"a": [1, None]}, dedupe_key="k", state={}, cause="c", **fields)
    offered = await store.offer("/p", "lane", "trigger", event)
    _require(offered is not None and offered.state == "pending", "offer must return the pending delivery")
    _require(await store.deliveries() == [offered], "deliveries must return what was offered")
    await _nothing_due(store, "the delivery is another project's", project="/q")
    claimed = await _claimed(store, as_id="worker-1")
    _require(claimed.event == event, "the event must be returned as it was offered")
    got = (claimed.state, claimed.attempts, claimed.epoch, claimed.session_id)
    _require(got == ("claimed", 1, 1, "worker-1"), f"the first claim must say attempt 1, epoch 1, its session: {got}")
    await _nothing_due(store, "the only delivery is claimed")


async def check_22_one_dedupe_key_is_delivered_once(store: DurableStore) -> None:
    """In its lane, even when the first delivery is done; events without a key all count."""
    await _offered(store, dedupe_key="k")
    _require(await store.offer("/p", "lane", "t", _event(dedupe_key="k")) is None, "a known dedupe_key must give None")
    await store.commit(await _claimed(store))
    _require(await store.offer("/p", "lane", "t", _event(dedupe_key="k")) is None, "a key that is done stays known")
    _require(await store.offer("/q", "lane", "t", _event(dedupe_key="k")) is not None, "a key is known per project")
    for lane, key in (("other", "k"), ("lane", None), ("lane", None)):
        await _offered(store, lane=lane, dedupe_key=key)


async def check_23_the_state_of_a_trigger_is_stored_with_its_event(store: DurableStore) -> None:
    """Of a duplicate and of a refused event too; by itself as well."""
    _require(await store.trigger_state("/p", "trigger") == {}, "the state must be {} before the first event")
    for number, refused in ((1, None), (2, None), (3, "too deep")):
        await store.offer("/p", "lane", "trigger", _event(dedupe_key="k", state={"at": number}), refused=refused)
        kept = await store.trigger_state("/p", "trigger")
        _require(kept == {"at": number}, f"offer must store the state of event {number}, not {kept}")
    await _offered(store, state=None)
    _require(await store.trigger_state("/p", "trigger") == {"at": 3}, "an event without state must keep the last one")
    await store.save_trigger_state("/p", "trigger", {"at": 4})
    _require(await store.trigger_state("/p", "trigger") == {"at": 4}, "save_trigger_state must store the state")
    _require(await store.trigger_state("/q", "trigger") == {}, "a state must be its project's alone")


async def check_24_a_refused_event_is_recorded_and_not_delivered(store: DurableStore) -> None:
    """With its reason."""
    await store.offer("/p", "lane", "trigger", _event(), refused="too deep")
    await _nothing_due(store, "the only event was refused")
    refused = await store.deliveries(state="refused")
    _require(
        [delivery.reason for delivery in refused] == ["too deep"], "a refused event must be listed with its reason"
    )


async def check_25_the_oldest_delivery_is_claimed_first(store: DurableStore) -> None:
    """And each by one worker, however many ask at once."""
    offered = [(await _offered(store, f"e{number}")).delivery_id for number in range(5)]
    first = (await _claimed(store)).delivery_id
    asked = (store.claim("/p", "lane", owner="w", lease=60, session_id="w", now=LATER) for _ in range(8))
    others = [delivery.delivery_id for delivery in await asyncio.gather(*asked) if delivery is not None]
    _require(first == offered[0], "the delivery that was offered first must be claimed first")
    _require(sorted(others) == sorted(offered[1:]), "each delivery must be claimed by one worker, and none left")


async def check_26_a_lease_that_ran_out_frees_its_delivery(store: DurableStore) -> None:
    """For a claim of the next epoch, by the same session; `renew` puts it off."""
    await _offered(store)
    first = await _claimed(store, as_id="first")
    await store.renew(first, lease=60, now=LATER + timedelta(seconds=50))
    await _nothing_due(store, "the lease was renewed", now=LATER + timedelta(seconds=100))
    second = await _claimed(store, LATER + timedelta(seconds=111), as_id="second")
    _require((second.epoch, second.attempts) == (2, 2), "a claim after the lease must have the next epoch and attempt")
    _require(second.session_id == "first", "a later claim must keep the session of the first")


async def check_27_a_stale_epoch_changes_nothing(store: DurableStore) -> None:
    """Whatever its worker tries."""
    await store.create(SessionRecord("worker", name="before"))
    await _offered(store)
    stale = await _claimed(store)
    await _claimed(store, LATER + timedelta(hours=1))
    before, session = await _stored(store), await store.get("worker")
    commit = store.commit(stale, emits=_emitted("a"), session={"name": "after"})
    await _refuses(commit, StaleEpoch, "commit of a stale epoch")
    await _refuses(store.renew(stale, lease=60), StaleEpoch, "renew of a stale epoch")
    await _refuses(store.retry(stale, reason="r", available_at=LATER), StaleEpoch, "retry of a stale epoch")
    await _refuses(store.bury(stale, reason="r", emits=_emitted("a")), StaleEpoch, "bury of a stale epoch")
    _require(await _stored(store) == before, "a stale epoch must not change the delivery")
    _require(await store.get("worker") == session, "a stale epoch must not change the session")
    _require(await store.events() == [], "a stale epoch must not log events")


async def check_28_a_commit_is_done_whole(store: DurableStore) -> None:
    """Delivery, session and events; a second one is stale."""
    await store.create(SessionRecord("worker"))
    await _offered(store)
    claimed = await _claimed(store)
    logged = await store.commit(claimed, emits=_emitted("a", "b"), session={"status": "completed", "turn_count": 1})
    _require([event.name for event in logged] == ["a", "b"], "commit must return the events it logged")
    _require(await store.events() == logged, "commit must log its events, with the sequences it returned")
    record = await store.get("worker")
    _require((record.status, record.turn_count) == ("completed", 1), "commit must change the session's record")
    _require((await _stored(store)).state == "done", "commit must mark the delivery done")
    await _nothing_due(store, "the only delivery is done", now=LATER + timedelta(days=1))
    await _refuses(store.commit(claimed, emits=_emitted("c")), StaleEpoch, "a second commit")
    _require(await store.events() == logged, "a second commit must log nothing")


async def check_29_a_commit_that_fails_leaves_nothing(store: DurableStore) -> None:
    """Here its session does not exist."""
    await _offered(store)
    claimed = await _claimed(store)
    commit = store.commit(claimed, emits=_emitted("a"), session={"session_id": "nobody", "name": "x"})
    await _refuses(commit, SessionNotFound, "commit with an unknown session")
    _require(await store.events() == [], "a failed commit must log nothing")
    _require(await _stored(store) == claimed, "a failed commit must leave the delivery claimed")
    await store.commit(claimed)


async def check_30_a_failed_delivery_comes_back_or_is_set_aside(store: DurableStore) -> None:
    """`retry` not before its time; `bury` for good."""
    await _offered(store)
    due = LATER + timedelta(minutes=5)
    await store.retry(await _claimed(store), reason="no network", available_at=due)
    pending = await _stored(store)
    got = (pending.state, pending.reason, pending.available_at)
    _require(got == ("pending", "no network", due), f"retry must keep the reason and the time: {got}")
    await _nothing_due(store, "the next attempt is not due", now=due - timedelta(microseconds=1))
    again = await _claimed(store, due)
    _require((again.attempts, again.epoch) == (2, 2), "a retried delivery must be at attempt 2, epoch 2")
    logged = await store.bury(again, reason="gave up", emits=_emitted("dead"))
    dead = await _stored(store)
    _require((dead.state, dead.reason) == ("dead", "gave up"), "bury must set the delivery aside with its reason")
    _require(await store.events() == logged and len(logged) == 1, "bury must log its events")
    await _nothing_due(store, "the only delivery is dead", now=due + timedelta(days=1))


async def check_31_what_a_dead_process_claimed_is_released(store: DurableStore) -> None:
    """At once, within its project; its claim is over."""
    await _offered(store)
    await store.offer("/q", "lane", "trigger", _event())
    first = await _claimed(store)
    await store.claim("/q", "lane", owner="me", lease=60, session_id="other", now=LATER)
    _require(await store.release("/p") == 1, "release must return how many deliveries it freed")
    await _refuses(store.commit(first), StaleEpoch, "commit of a delivery that was released")
    second = await _claimed(store)
    _require((second.epoch, second.session_id) == (2, "worker"), "a released delivery must keep its session")
    await _nothing_due(store, "the delivery of the other project is still claimed", project="/q")


async def check_32_deliveries_are_listed_newest_first(store: DurableStore) -> None:
    """By project, lane and state."""
    offered = [await _offered(store, lane=lane) for lane in ("a", "b", "a")]
    await store.offer("/q", "a", "trigger", _event())
    await store.commit(await _claimed(store, lane="b"))
    for wanted, expected in (({"lane": "a"}, [2, 0]), ({"state": "done"}, [1]), ({"limit": 1}, [2])):
        listed = await store.deliveries(**{"project": "/p", **cast("dict[str, Any]", wanted)})
        ids = [delivery.delivery_id for delivery in listed]
        _require(ids == [offered[number].delivery_id for number in expected], f"deliveries by {wanted}, newest first")
    _require(len(await store.deliveries()) == 4, "deliveries without conditions must return those of all projects")


def _numbered(first: int, last: int) -> tuple[Callable[[Any], Awaitable[None]], ...]:
    names = sorted(name for name in globals() if name.startswith("check_") and name[6:8].isdigit())
    return tuple(globals()[name] for name in names if first <= int(name[6:8]) <= last)


SESSION_STORE_CHECKS = _numbered(1, 19)
INBOX_CHECKS = _numbered(20, 99)
