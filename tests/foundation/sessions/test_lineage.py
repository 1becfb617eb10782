"""The tree of sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from amplifier_core import Delivery, SessionRecord, TriggerEvent, TriggerType
from amplifier_foundation.sessions.lineage import Node, describe_event, forest, parting, subtree, walk

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(name: str, minute: int, **fields: object) -> SessionRecord:
    return SessionRecord(name, created=START + timedelta(minutes=minute), **fields)  # type: ignore[arg-type]


def shape(nodes: list[Node]) -> list[object]:
    return [[node.record.session_id, *shape(node.children)] for node in nodes]


def test_children_stand_below_their_parent_and_forks_below_their_source() -> None:
    records = [
        record("fork", 3, parent_id="child", fork_of="child", fork_at=2),
        record("root", 0),
        record("child", 1, parent_id="root"),
        record("second", 2, parent_id="root"),
        record("lost", 4, parent_id="gone"),
    ]
    assert shape(forest(records)) == [["root", ["child", ["fork"]], ["second"]], ["lost"]]


def test_a_circle_in_a_damaged_store_is_cut() -> None:
    roots = forest([record("a", 0, parent_id="b"), record("b", 1, parent_id="a"), record("self", 2, parent_id="self")])
    flat = str(shape(roots))
    assert all(flat.count(f"'{name}'") == 1 for name in ("a", "b", "self"))


def test_a_session_knows_what_woke_it() -> None:
    woken = TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path="a.py", change_type="modified")
    delivery = Delivery("d1", "/p", "b/s", "t", woken, session_id="child")
    roots = forest([record("root", 0), record("child", 1, parent_id="root")], [delivery])
    found = subtree(roots, "child")
    assert found is not None
    assert found.woken_by is delivery
    assert subtree(roots, "absent") is None


def test_events_are_described_in_a_few_words() -> None:
    described = [
        describe_event(TriggerEvent(TriggerType.FILE_CHANGE, "x", file_path="a.py", change_type="created")),
        describe_event(TriggerEvent(TriggerType.TIMER, "x", data={"tick": 2})),
        describe_event(TriggerEvent(TriggerType.SESSION_EVENT, "x", event_name="e", source_session_id="s")),
        describe_event(TriggerEvent(TriggerType.MANUAL, "x")),
        describe_event(TriggerEvent(TriggerType.CUSTOM, "trigger-spool")),
    ]
    assert described == ["file a.py created", "timer, tick 2", "event e of s", "by hand", "trigger-spool"]


def test_a_circle_is_cut_in_itself_and_not_below_it() -> None:
    records = [record("below", 0, parent_id="a"), record("a", 1, parent_id="b"), record("b", 2, parent_id="a")]
    assert shape(forest(records)) == [["a", ["below"], ["b"]]]


def test_a_chain_of_forks_may_be_as_long_as_it_likes() -> None:
    chain = [record("s0", 0), *(record(f"s{number}", number, fork_of=f"s{number - 1}") for number in range(1, 5_000))]
    roots = forest(chain)
    assert [depth for depth, _ in walk(roots)] == list(range(5_000))
    assert subtree(roots, "s4999") is not None


def test_two_histories_part_where_they_first_differ() -> None:
    def said(*texts: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text} for text in texts]

    assert parting(said("a", "b", "c"), said("a", "x")) == (1, (said("b", "c"), said("x")))
    assert parting(said("a"), said("a", "b")) == (1, ([], said("b")))
    assert parting(said("a"), said("a")) == (1, ([], []))
    assert parting([], said("a")) == (0, ([], said("a")))
